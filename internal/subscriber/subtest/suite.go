package subtest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/fanout/fanout/internal/delivery"
	"github.com/fanout/fanout/internal/schedule"
	"github.com/fanout/fanout/internal/subscriber"
)

// Rig is one empty Backend and what the suite must do around it.
type Rig struct {
	Backend subscriber.Backend
	Now     func(context.Context) (time.Time, error)
	// Enqueue gives a subscriber n deliveries, due at once.
	Enqueue func(t testing.TB, id string, n int)
	// Lease takes exactly one of them, until end is called, which settles it.
	Lease func(t testing.TB, id string) (end func())
}

// Run runs the suite, each test over a Rig of its own.
func Run(t *testing.T, rig func(t testing.TB) Rig) {
	t.Helper()
	for _, c := range []struct {
		name string
		test func(*testing.T, bundle)
	}{
		{"versions", testVersions},
		{"generations and changes", testChanges},
		{"list in pages", testList},
		{"store round trip", testRoundTrip},
		{"patch under a version", testPatchVersion},
		{"patches at the same time", testConcurrentPatches},
		{"pause and resume", testPause},
		{"delete waits for leases", testDeleteWaits},
		{"delete without waiting", testDeleteNoWait},
		{"finish what a crash left", testFinishDeletes},
		{"directory follows", testDirectory},
		{"directory at a version", testAt},
		{"rotate a secret", testRotate},
		{"rotations at the same time", testConcurrentRotations},
		{"headers", testHeaders},
		{"list by account and class", testFilteredList},
		{"sealed", testSealed},
		{"reseal", testReseal},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			r := rig(t)
			c.test(t, bundle{Rig: r, store: subscriber.New(r.Backend, AnyURL{}, []string{"standard", "bulk"}, r.Now), ctx: t.Context()})
		})
	}
}

// AnyURL is a URLPolicy that allows everything.
type AnyURL struct{}

// CheckURL allows everything.
func (AnyURL) CheckURL(string) error { return nil }

type bundle struct {
	Rig
	store *subscriber.Store
	ctx   context.Context //nolint:containedctx // one test's
}

func (b bundle) create(t *testing.T, d subscriber.Draft) subscriber.Subscriber {
	t.Helper()
	if d.URL == nil {
		d.URL = new("https://example.com/hook")
	}
	return must(b.store.Create(b.ctx, d))(t)
}

// must(f())(t) is f's value, or the end of the test.
func must[T any](v T, err error) func(testing.TB) T {
	return func(t testing.TB) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}

func wantErr(t *testing.T, what string, err, want error) {
	t.Helper()
	if !errors.Is(err, want) {
		t.Errorf("%s: %v, want %v", what, err, want)
	}
}

func testVersions(t *testing.T, b bundle) {
	terms := schedule.Terms{Class: "standard", MaxInFlight: 1, LeaseTime: time.Second}
	put := func(id string, expect int64, blob string) (int64, error) {
		return b.Backend.PutConfig(b.ctx, id, expect, []byte(blob), terms, schedule.Edited)
	}
	first := must(put("sub_a", 0, "one"))(t)
	if again := must(put("sub_a", 0, "one"))(t); again != first {
		t.Errorf("the same call again made version %d of %d", again, first)
	}
	_, err := put("sub_a", 0, "another")
	wantErr(t, "put a new one over another", err, schedule.ErrVersion)
	second := must(put("sub_a", first, "two"))(t)
	if first < 1 || second <= first {
		t.Errorf("versions %d, %d do not grow from 1", first, second)
	}
	_, err = put("sub_a", first, "another")
	wantErr(t, "put over an old version", err, schedule.ErrVersion)
	_, err = put("sub_b", 7, "one")
	wantErr(t, "put over nobody", err, schedule.ErrNotFound)
	if c := must(b.Backend.Config(b.ctx, "sub_a"))(t); c.ID != "sub_a" || c.Version != second || string(c.Blob) != "two" || c.Deleted {
		t.Errorf("read back %+v", c)
	}
	_, err = b.Backend.Config(b.ctx, "sub_b")
	wantErr(t, "read nobody", err, schedule.ErrNotFound)

	wantErr(t, "tombstone nobody", b.Backend.Tombstone(b.ctx, "sub_b", ""), schedule.ErrNotFound)
	for _, owner := range []string{"acme", ""} { // again, by somebody who cannot read it any more
		if err := b.Backend.Tombstone(b.ctx, "sub_a", owner); err != nil {
			t.Fatalf("tombstone: %v", err)
		}
		if _, _, _, err := b.Backend.CancelPending(b.ctx, "sub_a", 10); err != nil {
			t.Fatalf("cancel of a tombstone: %v", err)
		}
	}
	_, err = b.Backend.Config(b.ctx, "sub_a")
	wantErr(t, "read a tombstone", err, schedule.ErrNotFound)
	if owners := must(b.Backend.Owners(b.ctx, []string{"sub_b", "sub_a"}))(t); !slices.Equal(owners, []string{"", "acme"}) {
		t.Errorf("owners %q", owners)
	}
	_, err = put("sub_a", second, "three")
	wantErr(t, "put over a tombstone", err, schedule.ErrNotFound)
	if _, err := put("sub_a", 0, "three"); err == nil {
		t.Error("a deleted id was used again")
	}
}

func testChanges(t *testing.T, b bundle) {
	before := must(b.Backend.Generations(b.ctx))(t)
	a, c := b.create(t, subscriber.Draft{}), b.create(t, subscriber.Draft{})
	middle := must(b.Backend.Generations(b.ctx))(t)
	p := int(delivery.Hash16(a.ID)) % len(before)
	if middle[p] <= before[p] {
		t.Errorf("generation of partition %d stayed at %d", p, middle[p])
	}
	must(b.store.Pause(b.ctx, c.ID))(t)
	if err := b.Backend.Tombstone(b.ctx, a.ID, ""); err != nil {
		t.Fatal(err)
	}

	since := func(gens []int64) map[string]schedule.Config {
		m := map[string]schedule.Config{}
		for p, g := range gens {
			configs, upTo, err := b.Backend.Changes(b.ctx, p, g)
			if err != nil {
				t.Fatal(err)
			}
			for _, c := range configs {
				m[c.ID] = c
			}
			if len(configs) > 0 && upTo <= g {
				t.Errorf("changes past %d reach only %d", g, upTo)
			}
		}
		return m
	}
	for name, gens := range map[string][]int64{"the middle": middle, "the beginning": make([]int64, len(before))} {
		got := since(gens)
		if len(got) != 2 || !got[a.ID].Deleted || got[c.ID].Deleted || got[c.ID].Version <= c.Version {
			t.Errorf("changes since %s: %+v", name, got)
		}
	}
	if got := since(must(b.Backend.Generations(b.ctx))(t)); len(got) != 0 {
		t.Errorf("changes since now: %+v", got)
	}
}

func testList(t *testing.T, b bundle) {
	var ids []string
	for i := range 25 {
		ids = append(ids, b.create(t, subscriber.Draft{Name: new(fmt.Sprint(i))}).ID)
	}
	must(b.store.Delete(b.ctx, ids[3], true))(t)
	ids = slices.Delete(ids, 3, 4)
	slices.Sort(ids)
	var got []string
	for after := ""; ; {
		page := must(b.store.List(b.ctx, subscriber.ListFilter{}, after, 7))(t)
		for _, s := range page {
			got = append(got, s.ID)
		}
		if len(page) < 7 {
			break
		}
		after = got[len(got)-1]
	}
	if !slices.Equal(got, ids) {
		t.Errorf("listed\n%v\nwant\n%v", got, ids)
	}
	for _, limit := range []int{0, subscriber.MaxList + 1} {
		if _, err := b.store.List(b.ctx, subscriber.ListFilter{}, "", limit); err == nil {
			t.Errorf("listed with limit %d", limit)
		}
	}
}

// inParallel runs f n times at once and returns when all have.
func inParallel(n int, f func(i int)) {
	var wg sync.WaitGroup
	for i := range n {
		wg.Go(func() { f(i) })
	}
	wg.Wait()
}

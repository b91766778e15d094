package subtest

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"testing"
	"time"

	"github.com/fanout/fanout/internal/delivery"
	"github.com/fanout/fanout/internal/subscriber"
)

func testRoundTrip(t *testing.T, b bundle) {
	made := b.create(t, subscriber.Draft{
		Account: new("acme"), Name: new("Ünits & <more>"), URL: new("https://example.com/h?token=x"), Class: new("bulk"),
		Filter: &subscriber.Filter{Types: []string{"shipment.*"}, Attributes: map[string][]string{"carrier": {"dhl", "ups"}}},
		Policy: &subscriber.PolicyPatch{MaxAttempts: new(3), Classify: &map[int]delivery.Override{404: delivery.OverrideRetry}},
		Paused: new(true),
	})
	got := must(b.store.Get(b.ctx, made.ID))(t)
	if !reflect.DeepEqual(got, made) {
		t.Errorf("read back another subscriber: %#v is not %#v", got.Policy, made.Policy)
	}
	if made.Version < 1 || made.CreatedAt.IsZero() || len(made.Secrets) != 1 {
		t.Errorf("made without version, time or secret: %v", made)
	}
	_, err := b.store.Get(b.ctx, "sub_nobody")
	wantErr(t, "get nobody", err, subscriber.ErrNotFound)
}

func testPatchVersion(t *testing.T, b bundle) {
	s := b.create(t, subscriber.Draft{})
	next := must(b.store.Patch(b.ctx, s.ID, s.Version, subscriber.Draft{Name: new("second")}))(t)
	if next.Version <= s.Version || next.Name != "second" || next.URL != s.URL || next.CreatedAt != s.CreatedAt {
		t.Errorf("patched into %v, name %q", next, next.Name)
	}
	_, err := b.store.Patch(b.ctx, s.ID, s.Version, subscriber.Draft{Name: new("third")})
	wantErr(t, "patch an old version", err, subscriber.ErrVersion)
	same := must(b.store.Patch(b.ctx, s.ID, next.Version, subscriber.Draft{Name: new("second")}))(t)
	if !reflect.DeepEqual(same, next) {
		t.Errorf("a patch that changes nothing made %v of %v", same, next)
	}
	_, err = b.store.Patch(b.ctx, "sub_nobody", -1, subscriber.Draft{})
	wantErr(t, "patch nobody", err, subscriber.ErrNotFound)
}

// testConcurrentPatches: none of the patches undoes another.
func testConcurrentPatches(t *testing.T, b bundle) {
	s := b.create(t, subscriber.Draft{})
	drafts := []subscriber.Draft{
		{Name: new("new name")},
		{URL: new("https://example.com/other")},
		{Policy: &subscriber.PolicyPatch{MaxInFlight: new(7)}},
		{Filter: &subscriber.Filter{Types: []string{"a.b"}}},
	}
	inParallel(len(drafts), func(i int) {
		if _, err := b.store.Patch(b.ctx, s.ID, -1, drafts[i]); err != nil {
			t.Error(err)
		}
	})
	got := must(b.store.Get(b.ctx, s.ID))(t)
	if got.Name != "new name" || got.URL != *drafts[1].URL || got.Policy.MaxInFlight != 7 || got.Filter.Types[0] != "a.b" {
		t.Errorf("a patch was lost: %q %q %d %v", got.Name, got.URL, got.Policy.MaxInFlight, got.Filter)
	}
	if got.Version < s.Version+int64(len(drafts)) {
		t.Errorf("%d patches took version %d to %d", len(drafts), s.Version, got.Version)
	}
}

func testPause(t *testing.T, b bundle) {
	s := b.create(t, subscriber.Draft{})
	for _, c := range []struct {
		do   func(context.Context, string) (subscriber.Subscriber, error)
		want bool
	}{{b.store.Pause, true}, {b.store.Pause, true}, {b.store.Resume, false}, {b.store.Resume, false}} {
		if got := must(c.do(b.ctx, s.ID))(t); got.Paused != c.want {
			t.Errorf("paused is %v, want %v", got.Paused, c.want)
		}
	}
	// A second pause writes nothing; a second resume does, for the holds that only the
	// scheduler knows of.
	if got := must(b.store.Get(b.ctx, s.ID))(t); got.Paused || got.Version != s.Version+3 {
		t.Errorf("after pause and resume: %v, paused %v, made at version %d", got, got.Paused, s.Version)
	}
}

func testDeleteWaits(t *testing.T, b bundle) {
	s := b.create(t, subscriber.Draft{})
	b.Enqueue(t, s.ID, 20)
	end := b.Lease(t, s.ID)

	// While the lease lasts, a delete with a deadline gives up and says so.
	short, cancel := context.WithTimeout(b.ctx, 2*time.Second)
	defer cancel()
	got, err := b.store.Delete(short, s.ID, true)
	if !errors.Is(err, context.DeadlineExceeded) || got.Leases != 1 {
		t.Fatalf("deleted over a lease: %+v, %v", got, err)
	}

	done := make(chan error, 1)
	go func() {
		got, err := b.store.Delete(b.ctx, s.ID, true)
		if err == nil && !got.Done() {
			err = fmt.Errorf("returned with %+v", got)
		}
		done <- err
	}()
	end()
	if err := <-done; err != nil {
		t.Error(err)
	}
	if got := must(b.store.Delete(b.ctx, s.ID, true))(t); got != (subscriber.DeleteResult{}) {
		t.Errorf("a delete after the end did %+v", got)
	}
	_, err = b.store.Get(b.ctx, s.ID)
	wantErr(t, "get a deleted one", err, subscriber.ErrNotFound)
	_, err = b.store.Pause(b.ctx, s.ID)
	wantErr(t, "pause a deleted one", err, subscriber.ErrNotFound)
	_, err = b.store.Delete(b.ctx, "sub_nobody", false)
	wantErr(t, "delete nobody", err, subscriber.ErrNotFound)
}

func testDeleteNoWait(t *testing.T, b bundle) {
	s := b.create(t, subscriber.Draft{})
	b.Enqueue(t, s.ID, 600)
	total := 0 // of more than one batch
	for range 10 {
		got := must(b.store.Delete(b.ctx, s.ID, false))(t)
		total += got.Cancelled
		if got.Done() {
			break
		}
	}
	if total != 600 {
		t.Errorf("cancelled %d of 600", total)
	}
}

// testFinishDeletes crashes a delete right after its tombstone, and lets another
// process finish it.
func testFinishDeletes(t *testing.T, b bundle) {
	s, other := b.create(t, subscriber.Draft{}), b.create(t, subscriber.Draft{})
	b.Enqueue(t, s.ID, 20)
	end := b.Lease(t, s.ID)
	b.Enqueue(t, other.ID, 1)
	if left := must(b.store.FinishDeletes(b.ctx))(t); left != 0 {
		t.Errorf("%d to finish before any delete", left)
	}
	if err := b.Backend.Tombstone(b.ctx, s.ID, ""); err != nil {
		t.Fatal(err)
	}
	for name, store := range map[string]*subscriber.Store{
		"the same": b.store, "another": subscriber.New(b.Backend, AnyURL{}, nil, b.Now),
	} {
		if left := must(store.FinishDeletes(b.ctx))(t); left != 1 {
			t.Errorf("%s process: %d left while a lease lasts, want 1", name, left)
		}
	}
	cancelled, remaining, leases, err := b.Backend.CancelPending(b.ctx, s.ID, 1)
	if err != nil || cancelled != 0 || leases != 1 {
		t.Errorf("left to cancel: %d of %d, %d leases, %v", cancelled, remaining, leases, err)
	}
	end()
	if left := must(b.store.FinishDeletes(b.ctx))(t); left != 0 {
		t.Errorf("%d left at the end", left)
	}
	got := must(b.store.Delete(b.ctx, other.ID, true))(t)
	if got.Cancelled != 1 {
		t.Errorf("the living subscriber's delivery was cancelled too: %+v", got)
	}
}

func testDirectory(t *testing.T, b bundle) {
	d := subscriber.NewDirectory(b.Backend)
	match := func(attrs map[string]string) []string {
		t.Helper()
		if err := d.Refresh(b.ctx); err != nil {
			t.Fatal(err)
		}
		var ids []string
		for _, s := range d.Match(delivery.Event{Type: "shipment.delivered", Attributes: attrs}) {
			ids = append(ids, s.ID)
		}
		return ids
	}
	check := func(what string, got []string, want ...string) {
		t.Helper()
		if fmt.Sprint(got) != fmt.Sprint(want) {
			t.Errorf("%s: matched %v, want %v", what, got, want)
		}
	}
	dhl := map[string]string{"carrier": "dhl"}
	check("nobody", match(dhl))
	s := b.create(t, subscriber.Draft{Filter: &subscriber.Filter{Attributes: map[string][]string{"carrier": {"dhl"}}}})
	check("after a create", match(dhl), s.ID)
	must(b.store.Pause(b.ctx, s.ID))(t)
	check("paused", match(dhl), s.ID)
	must(b.store.Patch(b.ctx, s.ID, -1, subscriber.Draft{Filter: &subscriber.Filter{Attributes: map[string][]string{"carrier": {"ups"}}}}))(t)
	check("after a patch", match(dhl))
	check("after a patch", match(map[string]string{"carrier": "ups"}), s.ID)
	must(b.store.Delete(b.ctx, s.ID, false))(t)
	check("after a delete", match(map[string]string{"carrier": "ups"}))
	if d.Len() != 0 {
		t.Errorf("%d left", d.Len())
	}
}

func testAt(t *testing.T, b bundle) {
	d := subscriber.NewDirectory(b.Backend)
	s := b.create(t, subscriber.Draft{})
	if got := must(d.At(b.ctx, s.ID, s.Version))(t); got.URL != s.URL || len(got.Secrets) != 1 {
		t.Errorf("at %d: %v", s.Version, got)
	}
	next := must(b.store.Patch(b.ctx, s.ID, -1, subscriber.Draft{URL: new("https://example.com/new")}))(t)
	if got := must(d.At(b.ctx, s.ID, next.Version))(t); got.URL != next.URL || got.Version != next.Version {
		t.Errorf("at %d: %v, %s", next.Version, got, got.URL)
	}
	// An older lease gets the newest that is known.
	if got := must(d.At(b.ctx, s.ID, s.Version))(t); got.URL != next.URL {
		t.Errorf("an older version undid a newer: %v", got)
	}
	must(b.store.Delete(b.ctx, s.ID, false))(t)
	_, err := d.At(b.ctx, s.ID, next.Version+1)
	if !errors.Is(err, subscriber.ErrGone) || d.Len() != 0 {
		t.Errorf("deleted: %v, %d left", err, d.Len())
	}
}

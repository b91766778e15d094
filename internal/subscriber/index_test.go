package subscriber

import (
	"cmp"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"

	"pgregory.net/rapid"

	"github.com/fanout/fanout/internal/delivery"
)

// A small world, so that filters and events meet often.
var (
	genType  = rapid.SampledFrom([]string{"a", "a.b", "a.b.c", "a.c", "ab", "b", "b.b", "a."})
	genValue = rapid.SampledFrom([]string{"", "1", "2", "3"})
	genKey   = rapid.SampledFrom([]string{"x", "y", "z"})
	genEvent = rapid.Custom(func(t *rapid.T) delivery.Event {
		return delivery.Event{Type: genType.Draw(t, "type"), Attributes: rapid.MapOfN(genKey, genValue, 0, 3).Draw(t, "attributes")}
	})
	genFilter = rapid.Custom(func(t *rapid.T) Filter {
		pattern := rapid.SampledFrom([]string{"*", "a", "a.*", "a.b", "a.b.*", "b.*", "ab", "b"})
		return Filter{
			Types:      rapid.SliceOfN(pattern, 1, 3).Draw(t, "types"),
			Attributes: rapid.MapOfN(genKey, rapid.SliceOfN(genValue, 1, 3), 0, 3).Draw(t, "attributes"),
		}
	})
)

// oracle matches by definition alone.
func oracle(subs map[string]*Subscriber, e delivery.Event) (ids []string) {
	for id, s := range subs {
		if s.Filter.Matches(e) {
			ids = append(ids, id)
		}
	}
	slices.Sort(ids)
	return ids
}

func idsOf(subs []*Subscriber) (ids []string) {
	for _, s := range subs {
		ids = append(ids, s.ID)
	}
	return ids
}

// TestIndexIsTheOracle: after any changes, in any order, the index finds exactly
// what the definition says, and a snapshot goes on finding what it found.
func TestIndexIsTheOracle(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		x, now := newIndex(), map[string]*Subscriber{}
		type frozen struct {
			snap *snapshot
			subs map[string]*Subscriber
		}
		var past []frozen
		version := int64(0)
		id := rapid.Custom(func(t *rapid.T) string { return fmt.Sprintf("sub_%02d", rapid.IntRange(0, 40).Draw(t, "id")) })
		check := func(f frozen, e delivery.Event) {
			got := f.snap.match(e)
			if want := oracle(f.subs, e); !slices.Equal(idsOf(got), want) {
				t.Fatalf("%+v matched %v, want %v", e, idsOf(got), want)
			}
			for _, s := range got {
				if s != f.subs[s.ID] {
					t.Fatalf("%s is of version %d, want %d", s.ID, s.Version, f.subs[s.ID].Version)
				}
			}
			if f.snap.size != len(f.subs) {
				t.Fatalf("size %d, want %d", f.snap.size, len(f.subs))
			}
		}
		t.Repeat(map[string]func(*rapid.T){
			"put": func(t *rapid.T) {
				version++
				s := &Subscriber{ID: id.Draw(t, "id"), Version: version, Filter: genFilter.Draw(t, "filter")}
				x.put(s)
				now[s.ID] = s
			},
			"remove": func(t *rapid.T) {
				id := id.Draw(t, "id")
				x.remove(id)
				delete(now, id)
			},
			"match": func(t *rapid.T) {
				check(frozen{x.snapshot(), now}, genEvent.Draw(t, "event"))
			},
			"keep": func(*rapid.T) { past = append(past, frozen{x.snapshot(), maps.Clone(now)}) },
			"look back": func(t *rapid.T) {
				if len(past) > 0 {
					check(rapid.SampledFrom(past).Draw(t, "past"), genEvent.Draw(t, "event"))
				}
			},
		})
		for id := range now {
			x.remove(id)
		}
		if x.tree.Len() != 0 || len(x.crowd) != 0 || len(x.filed) != 0 {
			t.Fatalf("an empty index holds %d postings, %d conditions, %d subscribers", x.tree.Len(), len(x.crowd), len(x.filed))
		}
	})
}

// TestSnapshotsOfALargeIndex takes the B-tree through splits and merges of
// several levels while other goroutines look at snapshots of it.
func TestSnapshotsOfALargeIndex(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(1, 2))
	x, now := newIndex(), map[string]*Subscriber{}
	var lookers sync.WaitGroup
	defer lookers.Wait()
	for round := range 20 {
		for range 2000 {
			id := fmt.Sprintf("sub_%05d", r.IntN(6000))
			if r.IntN(10) < 3+round%6 { // grows, then shrinks
				x.remove(id)
				delete(now, id)
				continue
			}
			s := &Subscriber{ID: id, Filter: Filter{Types: []string{"*"}, Attributes: map[string][]string{"k": {fmt.Sprint(r.IntN(20))}}}}
			x.put(s)
			now[id] = s
		}
		snap, then := x.snapshot(), maps.Clone(now)
		lookers.Go(func() {
			for k := range 20 {
				e := delivery.Event{Type: "a", Attributes: map[string]string{"k": fmt.Sprint(k)}}
				if got, want := idsOf(snap.match(e)), oracle(then, e); !slices.Equal(got, want) {
					t.Errorf("round %d, k=%d: %d matches, want %d", round, k, len(got), len(want))
				}
			}
		})
	}
}

// TestFiledUnderTheSelective: everyone names carrier and zone, so nobody who also
// names a seller is filed under it, in whatever order they come.
func TestFiledUnderTheSelective(t *testing.T) {
	t.Parallel()
	x := newIndex()
	for i := range 10_000 {
		x.put(&Subscriber{ID: fmt.Sprintf("sub_%05d", i), Filter: Filter{
			Types: []string{"shipment.*"},
			Attributes: map[string][]string{
				"carrier": {[]string{"dhl", "ups", "posti"}[i%3]}, "seller_id": {fmt.Sprint("s_", i)}, "zone": {"eu"},
			},
		}})
	}
	for _, carrier := range []string{"dhl", "ups", "posti"} {
		if n := x.crowd[hashCond(x.seed, byAttribute, "carrier", carrier)]; n > 1 {
			t.Errorf("%d are filed under carrier=%s", n, carrier)
		}
	}
	if n := x.crowd[hashCond(x.seed, byAttribute, "zone", "eu")]; n > 1 {
		t.Errorf("%d are filed under zone=eu", n)
	}
	if n := x.crowd[hashCond(x.seed, byStem, "shipment", "")]; n > 1 {
		t.Errorf("%d are filed under shipment.*", n)
	}
}

// world is n subscribers as a marketplace has them: ten to each of n/10 sellers,
// each with a carrier, a tenth with no seller but an odd type.
func world(n int) *index {
	x := newIndex()
	for i := range n {
		f := Filter{Types: []string{"shipment.*"}, Attributes: map[string][]string{
			"carrier": {"dhl", "ups"}, "seller_id": {fmt.Sprint("s_", i%(n/10))},
		}}
		if i%10 == 9 {
			f = Filter{Types: []string{fmt.Sprintf("parcel.t%d.*", i)}}
		}
		x.put(&Subscriber{ID: fmt.Sprintf("sub_%06d", i), Filter: f})
	}
	return x
}

func wideEvent(seller string) delivery.Event {
	e := delivery.Event{Type: "shipment.delivered", Attributes: map[string]string{"carrier": "dhl", "seller_id": seller}}
	for i := range 14 {
		e.Attributes[fmt.Sprint("attribute_", i)] = fmt.Sprint("value_", i)
	}
	return e
}

// BenchmarkMatch: an event of 16 attributes that about 10 subscribers want.
func BenchmarkMatch(b *testing.B) {
	for _, n := range []int{1000, 100_000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			snap, e := world(n).snapshot(), wideEvent("s_7")
			if got := len(snap.match(e)); got != 10 {
				b.Fatalf("%d matches", got)
			}
			b.ReportAllocs()
			for b.Loop() {
				snap.match(e)
			}
		})
	}
}

// BenchmarkApplyOne: one change among 100,000 and the snapshot after it, where
// filters are selective and where all of them stand under "*".
func BenchmarkApplyOne(b *testing.B) {
	all := newIndex()
	for i := range 100_000 {
		all.put(&Subscriber{ID: fmt.Sprintf("sub_%06d", i), Filter: Filter{Types: []string{"*"}}})
	}
	for name, x := range map[string]*index{"selective": world(100_000), "everything": all} {
		b.Run(name, func(b *testing.B) {
			subs := slices.SortedFunc(func(yield func(*Subscriber) bool) {
				for _, f := range x.filed {
					if !yield(f.sub) {
						return
					}
				}
			}, func(a, b *Subscriber) int { return cmp.Compare(a.ID, b.ID) })
			b.ReportAllocs()
			i := 0
			for b.Loop() {
				x.put(subs[i*7919%len(subs)])
				_ = x.snapshot()
				i++
			}
		})
	}
}

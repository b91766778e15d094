package subscriber

import (
	"cmp"
	"hash/maphash"
	"maps"
	"math"
	"slices"
	"strings"

	"github.com/google/btree"

	"github.com/fanout/fanout/internal/delivery"
)

// The index is inverted: from what an event says to who asked for it.
//
// Each subscriber is filed under one condition of its filter, whichever is the
// least crowded: all values of one attribute, or all of its type patterns. A
// match probes what the event has, its attributes, its type, the stems of its
// type and "anything", and asks Filter.Matches about those that it finds. So a
// match costs what the most selective conditions say, not what the popular ones
// do: "carrier=dhl" may be half of all filters, and those that also name a
// seller are found under the seller.
//
// Conditions are 64-bit hashes. Two that collide cost a needless look at a
// filter, never a wrong match.
//
// The postings stand in a copy-on-write B-tree. A snapshot of it is O(1), and a
// change copies the few nodes on its path, even when all 100,000 subscribers
// are filed under "*".

// posting files one subscriber under one condition.
type posting struct {
	cond uint64
	id   string
	sub  *Subscriber
}

func (p posting) less(q posting) bool {
	if p.cond != q.cond {
		return p.cond < q.cond
	}
	return p.id < q.id
}

// degree of the B-tree: nodes of up to 31 postings, about 1 KiB, keep both a
// probe and the copy of a path short.
const degree = 16

// index is the builder's side: one goroutine at a time.
type index struct {
	seed  maphash.Seed
	tree  *btree.BTreeG[posting]
	filed map[string]filing
	// crowd is how many are filed under a condition.
	crowd map[uint64]int
}

// filing is where a subscriber stands.
type filing struct {
	sub   *Subscriber
	conds []uint64
}

func newIndex() *index {
	return &index{
		seed: maphash.MakeSeed(), tree: btree.NewG(degree, posting.less),
		filed: map[string]filing{}, crowd: map[uint64]int{},
	}
}

// put files a subscriber, in place of any earlier one of its id.
func (x *index) put(s *Subscriber) {
	x.remove(s.ID)
	conds := x.choose(s.Filter)
	for _, c := range conds {
		x.tree.ReplaceOrInsert(posting{cond: c, id: s.ID, sub: s})
		x.crowd[c]++
	}
	x.filed[s.ID] = filing{sub: s, conds: conds}
}

// remove unfiles a subscriber, if it is there.
func (x *index) remove(id string) {
	f, ok := x.filed[id]
	if !ok {
		return
	}
	for _, c := range f.conds {
		x.tree.Delete(posting{cond: c, id: id})
		x.crowd[c]--
		if x.crowd[c] == 0 {
			delete(x.crowd, c)
		}
	}
	delete(x.filed, id)
}

// snapshot is what matches are made on. It never changes.
func (x *index) snapshot() *snapshot {
	return &snapshot{seed: x.seed, tree: x.tree.Clone(), size: len(x.filed)}
}

// choose picks the conditions to file a filter under.
func (x *index) choose(f Filter) []uint64 {
	best, least := x.typeConds(f.Types)
	// In order of keys, so that equal crowds choose alike everywhere.
	for _, key := range slices.Sorted(maps.Keys(f.Attributes)) {
		conds := make([]uint64, len(f.Attributes[key]))
		for i, value := range f.Attributes[key] {
			conds[i] = hashCond(x.seed, byAttribute, key, value)
		}
		// On a tie the attribute wins: there are few types and many sellers.
		if conds = unique(conds); best == nil || x.cost(conds) <= least {
			best, least = conds, x.cost(conds)
		}
	}
	return best
}

// typeConds are the conditions of the patterns, and what they cost.
func (x *index) typeConds(patterns []string) ([]uint64, int) {
	if slices.Contains(patterns, "*") {
		// Probed by every event, so any attribute is better.
		return []uint64{hashCond(x.seed, byAnything, "", "")}, math.MaxInt
	}
	conds := make([]uint64, len(patterns))
	for i, pattern := range patterns {
		if stem, ok := strings.CutSuffix(pattern, ".*"); ok {
			conds[i] = hashCond(x.seed, byStem, stem, "")
		} else {
			conds[i] = hashCond(x.seed, byType, pattern, "")
		}
	}
	conds = unique(conds)
	return conds, x.cost(conds)
}

// cost is who would be met there, plus the entries that it takes.
func (x *index) cost(conds []uint64) int {
	n := len(conds)
	for _, c := range conds {
		n += x.crowd[c]
	}
	return n
}

func unique(conds []uint64) []uint64 {
	slices.Sort(conds)
	return slices.Compact(conds)
}

// snapshot is an immutable index, for any number of goroutines.
type snapshot struct {
	seed maphash.Seed
	tree *btree.BTreeG[posting]
	size int
}

// match finds the subscribers that an event is for, by id.
func (s *snapshot) match(e delivery.Event) []*Subscriber {
	var found []*Subscriber
	probe := func(kind byte, key, value string) {
		cond := hashCond(s.seed, kind, key, value)
		s.tree.AscendGreaterOrEqual(posting{cond: cond}, func(p posting) bool {
			if p.cond != cond {
				return false
			}
			if p.sub.Filter.Matches(e) {
				found = append(found, p.sub)
			}
			return true
		})
	}
	for key, value := range e.Attributes {
		probe(byAttribute, key, value)
	}
	probe(byType, e.Type, "")
	for i := range len(e.Type) {
		if e.Type[i] == '.' {
			probe(byStem, e.Type[:i], "")
		}
	}
	probe(byAnything, "", "")

	slices.SortFunc(found, func(a, b *Subscriber) int { return cmp.Compare(a.ID, b.ID) })
	// One filed under two patterns that both fit was found twice.
	return slices.CompactFunc(found, func(a, b *Subscriber) bool { return a.ID == b.ID })
}

// The kinds of condition.
const (
	byAttribute byte = iota
	byType
	byStem
	byAnything
)

// hashCond is the number of a condition.
func hashCond(seed maphash.Seed, kind byte, key, value string) uint64 {
	var h maphash.Hash
	h.SetSeed(seed)
	_ = h.WriteByte(kind)
	_, _ = h.WriteString(key)
	_ = h.WriteByte(0)
	_, _ = h.WriteString(value)
	return h.Sum64()
}

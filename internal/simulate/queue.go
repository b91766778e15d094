package simulate

import (
	"cmp"
	"slices"
)

// item is one delivery.
type item struct {
	sub      *subscriber
	key      uint64 // unique to the run, and the same under every policy
	event    uint64
	accepted int64 // us
	expires  int64 // ms
	due      int64 // ms
	leased   int64 // ms, when its attempt was
	attempts int
	lane     lane
	slow     bool // leased from the slots for the slow

	worker   int    // whose slot it holds
	since    int64  // us, from when on
	sent     int64  // us, when its request arrives
	ends     int64  // us, when its answer does
	told     int64  // us, for how long it was out when that was told last
	hanging  bool   // told at all
	answer   answer // what its attempt comes to
	accounts []*drain
}

// lane is where a delivery waits; redrive is an operator's, and is not played.
type lane int

const (
	fresh lane = iota
	retry
	lanes // how many
)

// deque is the fresh lane: deliveries come in the order of their due times, and go from
// either end.
type deque struct {
	ring []*item
	head int
	n    int
}

func (d *deque) at(i int) *item { return d.ring[(d.head+i)&(len(d.ring)-1)] }

func (d *deque) push(it *item) {
	if d.n == len(d.ring) {
		wider := make([]*item, max(8, 2*d.n)) // a power of two
		for i := range d.n {
			wider[i] = d.at(i)
		}
		d.ring, d.head = wider, 0
	}
	d.ring[(d.head+d.n)&(len(d.ring)-1)] = it
	d.n++
}

func (d *deque) popFront() *item {
	it := d.ring[d.head]
	d.ring[d.head] = nil
	d.head = (d.head + 1) & (len(d.ring) - 1)
	d.n--
	return it
}

func (d *deque) popBack() *item {
	i := (d.head + d.n - 1) & (len(d.ring) - 1)
	it := d.ring[i]
	d.ring[i] = nil
	d.n--
	return it
}

// remove takes one out of the middle.
func (d *deque) remove(it *item) {
	for i := range d.n {
		if d.at(i) != it {
			continue
		}
		for ; i > 0; i-- {
			d.ring[(d.head+i)&(len(d.ring)-1)] = d.at(i - 1)
		}
		d.popFront()
		return
	}
}

// ordered is what a heap holds.
type ordered[T any] interface{ before(o T) bool }

// heap is a binary heap: the least is first.
type heap[T ordered[T]] []T

func (h *heap[T]) push(v T) {
	a := append(*h, v)
	i := len(a) - 1
	for i > 0 {
		up := (i - 1) / 2
		if !v.before(a[up]) {
			break
		}
		a[i], i = a[up], up
	}
	a[i] = v
	*h = a
}

func (h *heap[T]) pop() T {
	a := *h
	top, last := a[0], a[len(a)-1]
	var none T
	a[len(a)-1] = none
	a = a[:len(a)-1]
	if len(a) > 0 {
		i := 0
		for {
			down := 2*i + 1
			if down >= len(a) {
				break
			}
			if down+1 < len(a) && a[down+1].before(a[down]) {
				down++
			}
			if !a[down].before(last) {
				break
			}
			a[i], i = a[down], down
		}
		a[i] = last
	}
	*h = a
	return top
}

// before orders the retry lane.
func (it *item) before(o *item) bool {
	return it.due < o.due || (it.due == o.due && it.key < o.key)
}

// order is a sorted set of subscribers, as Redis has it: by score, then by name, which
// here is a number.
type order []place

type place struct {
	score int64
	sub   *subscriber
}

func (o *order) find(score int64, s *subscriber) (int, bool) {
	return slices.BinarySearchFunc(*o, place{score, s}, func(a, b place) int {
		return cmp.Or(cmp.Compare(a.score, b.score), cmp.Compare(a.sub.index, b.sub.index))
	})
}

func (o *order) add(score int64, s *subscriber) {
	i, there := o.find(score, s)
	if !there {
		*o = slices.Insert(*o, i, place{score, s})
	}
}

func (o *order) remove(score int64, s *subscriber) {
	if i, there := o.find(score, s); there {
		*o = slices.Delete(*o, i, i+1)
	}
}

package schedule_test

import (
	"strconv"
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/fanout/fanout/internal/delivery"
)

// audit checks, from the raw keys and independently of the scripts, what must
// hold at every instant: the ledger balances and says what the records say; each
// delivery stands in exactly the places that its state demands; each subscriber's
// count of open leases is right, and each of its lanes stands in one place.
func (w *world) audit() {
	w.Helper()
	a := &auditor{world: w, placed: map[string][]string{}, open: map[string]int{}}
	for _, k := range w.keys("{fo:*") {
		prefix, rest, _ := strings.Cut(k, "}:")
		if strings.HasPrefix(prefix, "{fo:e") {
			continue
		}
		a.read(rest, k)
	}
	a.check()
}

type auditor struct {
	*world
	records []delivery.Delivery
	placed  map[string][]string // delivery id -> places, such as "q:f", "leases"
	open    map[string]int      // subscriber -> open leases
	subs    []string            // keys of subscriber hashes
}

func (a *auditor) read(rest, key string) {
	kind, id, _ := strings.Cut(rest, ":")
	switch kind {
	case "d":
		ds, err := a.Deliveries(a.ctx, []string{id})
		a.ok(err)
		if len(ds) == 1 {
			a.records = append(a.records, ds[0])
		}
	case "q", "pend":
		for _, m := range a.rdb.ZRange(a.ctx, key, 0, -1).Val() {
			place := kind
			if kind == "q" {
				place = rest[:3]
			}
			a.placed[m] = append(a.placed[m], place)
		}
	case "leases":
		for _, m := range a.rdb.ZRange(a.ctx, key, 0, -1).Val() {
			a.placed[m] = append(a.placed[m], kind)
		}
	case "dead":
		for _, m := range a.rdb.ZRange(a.ctx, key, 0, -1).Val() {
			place := "dead"
			if id != "" {
				place = "dead:s" // its subscriber's own list
			}
			a.placed[m] = append(a.placed[m], place)
		}
	case "sub":
		a.subs = append(a.subs, key)
	}
}

var laneOf = map[delivery.Lane]string{delivery.Fresh: "q:f", delivery.Retry: "q:r", delivery.Redrive: "q:d"}

func (a *auditor) check() {
	a.Helper()
	var pending, done, deadN, cancelled int64
	for _, d := range a.records {
		places := a.placed[d.ID]
		delete(a.placed, d.ID)
		want := map[string]bool{}
		switch d.State {
		case delivery.Scheduled:
			pending++
			want[laneOf[d.Lane]], want["pend"] = true, true
		case delivery.Leased:
			pending++
			want["leases"], want["pend"] = true, true
		case delivery.Dead:
			deadN++
			want["dead"], want["dead:s"] = true, true
		case delivery.Delivered:
			done++
		case delivery.Cancelled:
			cancelled++
		}
		final := d.State == delivery.Delivered || d.State == delivery.Cancelled
		for _, p := range places {
			// A lease outlives its delivery's end until its worker is heard of.
			if !want[p] && (!final || p != "leases") {
				a.Errorf("audit: %s is %s and stands in %v", d.ID, d.State, places)
			}
			if p == "leases" {
				a.open[d.SubscriberID]++
			}
			delete(want, p)
		}
		if len(want) > 0 {
			a.Errorf("audit: %s is %s and is missing from %v (stands in %v)", d.ID, d.State, want, places)
		}
		if got := int64(d.Attempts + d.Releases + min(d.LeaseLosses, delivery.MaxLeaseLosses)); got != d.DeliveryCount {
			a.Errorf("audit: %s: delivery_count %d, attempts+releases+losses %d", d.ID, d.DeliveryCount, got)
		}
	}
	for id, places := range a.placed {
		a.Errorf("audit: %s has no record and stands in %v", id, places)
	}
	l := a.ledger()
	if !l.Balanced() {
		a.Errorf("audit: ledger does not balance: %+v", l)
	}
	if l.Pending != pending || l.Delivered != done || l.Dead != deadN || l.Cancelled != cancelled {
		a.Errorf("audit: ledger %+v, records say pending=%d delivered=%d dead=%d cancelled=%d",
			l, pending, done, deadN, cancelled)
	}
	for _, key := range a.subs {
		a.checkSubscriber(key)
	}
	if a.Failed() {
		a.FailNow()
	}
}

// checkSubscriber derives where each lane of a subscriber must stand.
func (a *auditor) checkSubscriber(key string) {
	a.Helper()
	prefix, id, _ := strings.Cut(key, "sub:")
	h := a.rdb.HGetAll(a.ctx, key).Val()
	n, _ := strconv.Atoi(h["n"])
	limit, _ := strconv.Atoi(h["cap"])
	if n != a.open[id] {
		a.Errorf("audit: %s counts %d leases, %d are open", id, n, a.open[id])
	}
	for _, lane := range []string{"f", "r", "d"} {
		head := a.rdb.ZRangeWithScores(a.ctx, prefix+"q:"+lane+":"+id, 0, 0).Val()
		in := func(zset string) bool {
			_, err := a.rdb.ZScore(a.ctx, prefix+zset, id).Result()
			return err != redis.Nil //nolint:errorlint // the sentinel itself
		}
		due, ready := in("due:"+lane), in("ready:"+lane)
		eligible := in("age:e:" + h["cls"] + ":" + lane)
		limited := in("age:l:" + h["cls"] + ":" + lane)
		held := in("age:h:" + h["cls"] + ":" + lane)
		got := [...]bool{due || ready, due && ready, eligible, limited, held}
		var want [5]bool
		switch {
		case len(head) == 0 || h["tomb"] == "1":
		case h["hold"] != "":
			want[4] = true
		case n >= limit:
			want[3] = true
		default:
			want[0], want[2] = true, true
		}
		if got != want {
			a.Errorf("audit: %s lane %s: (in due or ready, in both, eligible, limited, held) = %v, want %v; %v",
				id, lane, got, want, h)
		}
	}
}

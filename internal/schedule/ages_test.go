package schedule_test

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/redis/go-redis/v9"
	"pgregory.net/rapid"

	"github.com/fanout/fanout/internal/delivery"
	"github.com/fanout/fanout/internal/schedule"
	"github.com/fanout/fanout/test/audit"
	"github.com/fanout/fanout/test/redistest"
)

// What on-call is told, at random instants under random work, is what follows from the
// raw records and hashes: the oldest heads by class, lane and kind, how many are limited,
// when the oldest dead letter died, and how many deliveries fall due in which minute.
func TestSampleFollowsFromRawState(t *testing.T) {
	t.Parallel()
	redistest.Both(t, func(t *testing.T, rdb redis.UniversalClient) {
		rapid.Check(t, func(rt *rapid.T) {
			if err := redistest.Flush(t.Context(), rdb); err != nil {
				t.Fatal(err)
			}
			l := newLoad(newWorld(t, rdb, schedule.Options{InitialCap: 2}), rt)
			for range rapid.IntRange(5, 40).Draw(rt, "steps") {
				l.step()
				if rapid.IntRange(0, 2).Draw(rt, "look") == 0 {
					l.compare()
				}
			}
			l.compare()
		})
	})
}

// load is random work on an engine.
type load struct {
	*world
	rt     *rapid.T
	prefix string
	names  []string
	out    []schedule.Leased
	events int
	stood  map[string]string    // how each subscriber stood last: see docs/holds.md
	freed  map[string]time.Time // when it was let off a hold or a limit last
}

// The subscribers' terms differ in what may limit or hold them.
var loadTerms = map[string]func(*schedule.Terms){
	"sub_free": func(*schedule.Terms) {},
	"sub_cap":  func(tm *schedule.Terms) { tm.MaxInFlight = 1 },
	"sub_rate": func(tm *schedule.Terms) { tm.RatePerSecond, tm.Burst = 0.1, 2 },
	"sub_gold": func(tm *schedule.Terms) { tm.Class, tm.BreakerFailures = "gold", 2 },
}

func newLoad(w *world, rt *rapid.T) *load {
	l := &load{world: w, rt: rt, names: slices.Sorted(maps.Keys(loadTerms)), stood: map[string]string{}, freed: map[string]time.Time{}}
	w.freeze()
	for name, set := range loadTerms {
		w.put(name, schedule.Edited, set)
	}
	l.prefix = strings.TrimSuffix(l.keys("*}:sub:sub_free")[0], "sub:sub_free")
	return l
}

func (l *load) draw(label string, n int) int { return rapid.IntRange(0, n-1).Draw(l.rt, label) }

func (l *load) name() string { return rapid.SampledFrom(l.names).Draw(l.rt, "subscriber") }

func (l *load) step() {
	defer l.watch()
	switch l.draw("step", 9) {
	case 0, 1, 2:
		l.events++
		l.world.post(fmt.Sprint("evt_", l.events), rapid.SliceOfNDistinct(rapid.SampledFrom(l.names), 1, 4, rapid.ID).Draw(l.rt, "to")...)
	case 3, 4:
		l.out = append(l.out, l.lease("w", room(1+l.draw("room", 4))).Leased...)
	case 5, 6:
		l.end()
	case 7:
		l.advance(time.Duration(rapid.SampledFrom([]int{1, 700, 9_000, 30_000, 90_000, 1_000_000}).Draw(l.rt, "pass")) * time.Millisecond)
	case 8:
		l.meddle()
	}
}

// watch notes when subscribers were let off what they were held or limited by: from then
// on their deliveries wait for a worker, and not since they fell due.
func (l *load) watch() {
	for _, name := range l.names {
		run, err := l.rdb.HGet(l.ctx, l.prefix+"sub:"+name, "run").Result()
		l.ok(err)
		now := strings.Fields(run)[6][:1]
		held := map[string]bool{"l": true, "t": true, "h": true, "u": true, "p": true}
		if held[l.stood[name]] && (now == "y" || now == "s") {
			l.freed[name] = l.frozen
		}
		l.stood[name] = now
	}
}

// end ends a lease, if one is out, in one of the ways in which leases end.
func (l *load) end() {
	if len(l.out) == 0 {
		return
	}
	i := l.draw("lease", len(l.out))
	one := l.out[i]
	l.out = append(l.out[:i], l.out[i+1:]...)
	var v schedule.Verdict
	now := l.clock()
	switch l.draw("verdict", 6) {
	case 0, 1:
		v = delivered(one)
	case 2:
		v = dead(one, "{}")
	case 3:
		l.ok(l.Release(l.ctx, 0, []schedule.Claim{{ID: one.ID, Fence: one.Fence(), Wait: time.Duration(l.draw("wait", 2)) * 7 * time.Second}}))
		return
	default:
		v = retry(one, now.Add(time.Duration(l.draw("due", 30*60))*time.Second))
		if l.draw("throttle", 3) == 0 {
			v.Outcome, v.RetryAfter = delivery.HTTP429, 20*time.Second
		}
	}
	_, err := l.Settle(l.ctx, 0, []schedule.Verdict{v})
	l.ok(err)
}

// meddle is what people do.
func (l *load) meddle() {
	name := l.name()
	switch l.draw("meddle", 3) {
	case 0:
		l.put(name, schedule.Lifted, func(tm *schedule.Terms) {
			loadTerms[name](tm)
			tm.Paused = l.draw("paused", 2) == 0
		})
	case 1: // of those that wait for later
		all, err := audit.Read(l.ctx, l.rdb)
		l.ok(err)
		for id, d := range all.Deliveries {
			if d.State == delivery.Scheduled && d.DueAt.After(l.frozen) {
				_, err := l.RetryNow(l.ctx, id)
				l.ok(err)
				return
			}
		}
	case 2:
		all, err := audit.Read(l.ctx, l.rdb)
		l.ok(err)
		for id, d := range all.Deliveries {
			if d.State == delivery.Scheduled {
				_, err := l.CancelDelivery(l.ctx, id)
				l.ok(err)
				return
			}
		}
	}
}

// compare asks for no work first, which has whatever a time has ended looked at: what
// dispatchers do once a second.
func (l *load) compare() {
	l.Helper()
	l.lease("nothing", schedule.Rooms{})
	l.watch()
	got, err := l.Sample(l.ctx, []string{"standard", "gold"})
	l.ok(err)
	all, err := audit.Read(l.ctx, l.rdb)
	l.ok(err)
	want := l.recompute(all, got)
	if diff := cmp.Diff(want, got); diff != "" {
		l.rt.Fatalf("at %s (-raw state +sample):\n%s", got.Now, diff)
	}
}

// recompute is the sample as it follows from the raw state; what this test is not about
// is as got has it.
func (l *load) recompute(all *audit.Snapshot, got schedule.Sample) schedule.Sample {
	want := got
	want.Now, want.Limited, want.OldestDead, want.Due = l.frozen, 0, time.Time{}, [schedule.DueMinutes]int64{}
	want.DueFrom = l.frozen.Truncate(time.Minute)
	want.Ages = nil
	for _, class := range []string{"standard", "gold"} {
		for _, lane := range delivery.Lanes {
			want.Ages = append(want.Ages, schedule.Ages{Class: class, Lane: lane})
		}
	}
	heads := map[string]map[delivery.Lane]time.Time{} // by subscriber
	for _, d := range all.Deliveries {
		due := d.DueAt.UTC()
		switch d.State {
		case delivery.Scheduled:
			if heads[d.SubscriberID] == nil {
				heads[d.SubscriberID] = map[delivery.Lane]time.Time{}
			}
			if h := heads[d.SubscriberID][d.Lane]; h.IsZero() || due.Before(h) {
				heads[d.SubscriberID][d.Lane] = due
			}
			if m := int(due.Truncate(time.Minute).Sub(want.DueFrom) / time.Minute); d.Lane != delivery.Fresh && m > 0 && m < len(want.Due) {
				want.Due[m]++
			}
		case delivery.Dead:
			if want.OldestDead.IsZero() || d.EndedAt.Before(want.OldestDead) {
				want.OldestDead = d.EndedAt.UTC()
			}
		case delivery.Leased, delivery.Delivered, delivery.Cancelled:
		}
	}
	want.Due[0] = got.Due[0] // what fell due already in this minute is nowhere any more
	for name, lanes := range heads {
		kind := l.kind(name)
		for lane, due := range lanes {
			if kind == "limited" && !due.After(l.frozen) {
				want.Limited++
			}
			if freed := l.freed[name]; kind == "eligible" && !due.After(l.frozen) && freed.After(due) {
				due = freed
			}
			l.age(want.Ages, name, lane, kind, due)
		}
	}
	l.expired(all, want.Ages)
	return want
}

// expired leases are eligible since they expired.
func (l *load) expired(all *audit.Snapshot, ages []schedule.Ages) {
	scores, err := l.rdb.ZRangeWithScores(l.ctx, l.prefix+"leases", 0, -1).Result()
	l.ok(err)
	if len(scores) == 0 {
		return
	}
	for _, z := range scores {
		d := all.Deliveries[fmt.Sprint(z.Member)]
		if at := time.UnixMilli(int64(z.Score)).UTC(); d.State == delivery.Leased && !at.After(l.frozen) {
			l.age(ages, d.SubscriberID, d.Lane, "eligible", at)
		}
	}
}

func (l *load) age(ages []schedule.Ages, name string, lane delivery.Lane, kind string, due time.Time) {
	class := "standard"
	if name == "sub_gold" {
		class = "gold"
	}
	for i := range ages {
		a := &ages[i]
		if a.Class != class || a.Lane != lane {
			continue
		}
		at := map[string]*time.Time{"eligible": &a.Eligible, "limited": &a.Limited, "held": &a.Held}[kind]
		if at.IsZero() || due.Before(*at) {
			*at = due
		}
	}
}

// kind reads a subscriber's hash as docs/redis.md tells it, and says what its deliveries
// wait for by the rules of docs/holds.md.
func (l *load) kind(name string) string {
	h, err := l.rdb.HGetAll(l.ctx, l.prefix+"sub:"+name).Result()
	l.ok(err)
	terms, run, guard := strings.Fields(h["terms"]), strings.Fields(h["run"]), strings.Fields(h["guard"])
	if len(guard) == 0 {
		guard = strings.Fields("0 0 0 0 0 0 - - 0 0 0 0")
	}
	n := func(word string) float64 {
		v, err := strconv.ParseFloat(word, 64)
		l.ok(err)
		return v
	}
	now := float64(l.frozen.UnixMilli())
	every, burst := n(terms[3]), n(terms[4])
	owed := max(0, n(run[5])-now)
	switch {
	case terms[7] == "1", guard[2] == "1", n(guard[3]) > now, n(guard[4]) > 0:
		return "held"
	case n(run[0]) >= min(n(terms[1]), float64(int(n(run[3])/10_000))):
		return "limited"
	case every > 0 && (burst*every-owed)/every+0.000001 < 1:
		return "limited"
	}
	return "eligible"
}

// What waits for its subscriber's cap, rate or hold is not late when that ends: its age as
// an eligible one counts from there, and goes on while it waits for a worker.
func TestWaitsSinceItMay(t *testing.T) {
	t.Parallel()
	contract(t, schedule.Options{}, func(_ *testing.T, w *world) {
		w.freeze()
		w.subscribe("s1", 1)
		w.post("e1", "s1")
		w.post("e2", "s1")
		posted := w.frozen
		want := func(when string, eligible, limited, held time.Time) {
			w.Helper()
			s, err := w.Sample(w.ctx, []string{"standard"})
			w.ok(err)
			if a := s.Ages[0]; a.Lane != delivery.Fresh || !a.Eligible.Equal(eligible) || !a.Limited.Equal(limited) || !a.Held.Equal(held) {
				w.Errorf("%s: %+v, want eligible %s, limited %s, held %s", when, a, eligible, limited, held)
			}
		}
		none := time.Time{}
		want("posted", posted, none, none)
		w.advance(time.Second)
		first := w.one("w")
		w.advance(20 * time.Second)
		want("at its cap", none, posted, none)
		w.settle(schedule.Applied, delivered(first))
		freed := w.frozen
		want("let off", freed, none, none)
		w.advance(40 * time.Second)
		want("no worker comes", freed, none, none)
		w.put("s1", schedule.Edited, func(tm *schedule.Terms) { tm.Paused = true })
		want("paused", none, none, posted)
		w.advance(time.Hour)
		w.put("s1", schedule.Lifted, func(tm *schedule.Terms) { tm.Paused = false })
		want("resumed", w.frozen, none, none)
		resumed := w.frozen
		w.advance(time.Minute)
		w.post("e3", "s1")
		want("another comes behind", resumed, none, none)
		w.audit()
	})
}

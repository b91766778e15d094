package dispatch

import (
	"cmp"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/fanout/fanout/internal/delivery"
	"github.com/fanout/fanout/internal/schedule"
)

// What a worker remembers of failures, for its reports.
const (
	// failingMost is of how many subscribers, and failingTop how many it reports. A
	// worker that sees more fail than it keeps knows that many do, which is what counts.
	failingMost = 64
	failingTop  = 10
	// recentFor is how far back the counts reach, in parts of recentPart.
	recentFor  = time.Minute
	recentPart = 10 * time.Second
	latelyFor  = 10 * time.Second
	// forgetAfter is when one that has not failed since is forgotten, and with it since
	// when it fails: longer than most rests of a breaker between two probes.
	forgetAfter = 15 * time.Minute
)

// failing keeps which subscribers fail, in bounded memory. An attempt that succeeds while
// nobody fails costs it one load.
type failing struct {
	any atomic.Int64 // how many are kept

	mu   sync.Mutex
	subs map[string]*failure
}

// failure is a subscriber that failed.
type failure struct {
	schedule.FailingSubscriber
	last  time.Time                     // its last failure, local time
	said  time.Time                     // the same, by the clock of Redis
	parts [recentFor / recentPart]int64 // its failures by part of the time
	part  int64                         // the latest of them
}

func newFailing() *failing { return &failing{subs: map[string]*failure{}} }

// wants says whether an outcome is any news. What is our fault says nothing of the
// subscriber, and a success only of one that failed.
func (f *failing) wants(o delivery.Outcome) bool {
	return o.Blame() != delivery.Us && (o != delivery.OK || f.any.Load() > 0)
}

// note takes in what an attempt came to, now by the clock of this machine and of Redis.
func (f *failing) note(l *lease, class string, o delivery.Outcome, now, redisNow time.Time) {
	f.mu.Lock()
	defer f.mu.Unlock()
	one := f.subs[l.SubscriberID]
	if o == delivery.OK {
		if one != nil {
			one.Since = time.Time{}
		}
		return
	}
	if one == nil {
		f.makeRoom(now)
		one = &failure{FailingSubscriber: schedule.FailingSubscriber{SubscriberID: l.SubscriberID}}
		f.subs[l.SubscriberID] = one
		f.any.Store(int64(len(f.subs)))
	}
	if one.Since.IsZero() {
		one.Since = redisNow
	}
	if class == "" { // its config could not be read
		class = otherClass
	}
	one.Class, one.Outcome, one.DeliveryID = class, o, l.ID
	one.last, one.said = now, redisNow
	one.turn(now)
	one.parts[one.part%int64(len(one.parts))]++
}

// turn clears the parts of the time that are over.
func (f *failure) turn(now time.Time) {
	part := now.UnixNano() / int64(recentPart)
	for n := max(f.part, part-int64(len(f.parts))); n < part; n++ {
		f.parts[(n+1)%int64(len(f.parts))] = 0
	}
	f.part = max(f.part, part)
}

func (f *failure) count() (n int64) {
	for _, part := range f.parts {
		n += part
	}
	return n
}

// makeRoom forgets the one that failed least, if there is no room for another. One that
// fails more than most is never that.
func (f *failing) makeRoom(now time.Time) {
	if len(f.subs) < failingMost {
		return
	}
	var least *failure
	for _, one := range f.subs {
		one.turn(now)
		if least == nil || cmp.Or(cmp.Compare(one.count(), least.count()), one.last.Compare(least.last)) < 0 {
			least = one
		}
	}
	delete(f.subs, least.SubscriberID)
}

// top are those that failed most in the last minute, and how many failed at all.
func (f *failing) top(now time.Time) (list []schedule.FailingSubscriber, total int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for id, one := range f.subs {
		one.turn(now)
		if now.Sub(one.last) > forgetAfter {
			delete(f.subs, id)
			continue
		}
		if n := one.count(); n > 0 {
			total++
			said := one.FailingSubscriber
			said.Count = n
			if said.Since.IsZero() { // it succeeded after its last failure
				said.Since = one.said
			}
			list = append(list, said)
		}
	}
	f.any.Store(int64(len(f.subs)))
	slices.SortFunc(list, func(a, b schedule.FailingSubscriber) int {
		return cmp.Or(cmp.Compare(b.Count, a.Count), cmp.Compare(a.SubscriberID, b.SubscriberID))
	})
	return list[:min(len(list), failingTop)], total
}

// recent turns counts that only grow into those of the last minute: it remembers what
// they were at each report.
type recent struct{ past []tallies }

// tallies are the attempts so far, by class and outcome.
type tallies struct {
	at     time.Time
	counts map[schedule.RecentAttempts]int64 // keys without Count
}

// since is what has come in the last minute, the most first.
func (r *recent) since(now tallies) (list []schedule.RecentAttempts) {
	r.past = append(r.past, now)
	for len(r.past) > 1 && now.at.Sub(r.past[1].at) >= recentFor {
		r.past = slices.Delete(r.past, 0, 1)
	}
	then := r.past[0]
	if len(r.past) == 1 {
		then = tallies{} // it began just now: all that there is
	}
	list = now.beyond(then)
	slices.SortFunc(list, func(a, b schedule.RecentAttempts) int {
		return cmp.Or(cmp.Compare(b.Count, a.Count), cmp.Compare(a.Class, b.Class), cmp.Compare(a.Outcome, b.Outcome))
	})
	return list
}

// lately is what has come in the last 10 s, as of the last report.
func (r *recent) lately() (t schedule.Tries) {
	now := r.past[len(r.past)-1]
	then := tallies{}
	for _, p := range r.past[:len(r.past)-1] {
		if then.at.IsZero() || now.at.Sub(p.at) >= latelyFor {
			then = p
		}
	}
	for _, a := range now.beyond(then) {
		t.Attempts += a.Count
		if a.Outcome != delivery.OK {
			t.Failures += a.Count
		}
	}
	return t
}

// beyond is what has come since, in no order.
func (t tallies) beyond(then tallies) (list []schedule.RecentAttempts) {
	for key, n := range t.counts {
		if n -= then.counts[key]; n > 0 {
			key.Count = n
			list = append(list, key)
		}
	}
	return list
}

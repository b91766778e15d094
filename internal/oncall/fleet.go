package oncall

import (
	"cmp"
	"slices"
	"time"

	"github.com/fanout/fanout/internal/delivery"
	"github.com/fanout/fanout/internal/schedule"
)

// maxFailing is how many failing subscribers a snapshot names.
const maxFailing = 10

// Fleet is what the dispatchers say of themselves, put together. They report every
// 2 s; one that has been silent for 15 s is not in it.
type Fleet struct {
	// Known says that the reports could be read; all else is zero if not.
	Known   bool
	Workers []schedule.WorkerReport
	// Groups are the workers by version and slice, in order.
	Groups []Group
	// Slots that all have, and Used of them.
	Slots, Used int
	// Uses are the slots in use by pool and lane, every pair, in a fixed order.
	Uses []Use
	// SlowLimit, RetryLimit and RedriveLimit are how many slots may be used by
	// subscribers that take long, by retries and by redrives.
	SlowLimit, RetryLimit, RedriveLimit int
	// PerSecond is attempts a second, as they are now; SlotSeconds how long one has its
	// slot; Capacity how many attempts a second the slots could carry at that: Slots /
	// SlotSeconds. The last two are 0 while no attempt was ever made.
	PerSecond, SlotSeconds, Capacity float64
	// RedisLatency is the mean time of a dispatcher's call of Redis in the last seconds;
	// that of the worst dispatcher. 0: not known.
	RedisLatency time.Duration
	// Attempts that ended in the last minute, and Failures among them.
	Attempts, Failures int64
	// Lately are those of the last 10 s: whether what the minute shows is over.
	Lately schedule.Tries
	// Recent are the same by class and outcome, the most first.
	Recent []schedule.RecentAttempts
	// Failing are the subscribers with the most failures in the last minute, the most
	// first, at most 10; FailingTotal how many have any (each dispatcher knows up to 64,
	// so it is a lower bound when many fail).
	Failing      []Failing
	FailingTotal int
}

// Group is the workers of one version and slice.
type Group struct {
	Version, Slice string
	Workers        int
	Slots, Used    int
}

// Use is the slots in use of one pool and lane.
type Use struct {
	Pool string // fast or slow
	Lane delivery.Lane
	Used int
}

// Failing is a subscriber whose attempts failed in the last minute.
type Failing struct {
	SubscriberID string
	Class        string
	Outcome      delivery.Outcome // that most of them came to
	Count        int64
	// Share of all failures of the last minute, 0 to 1.
	Share float64
	// Since is when it began to fail without a success between, local time of the worker
	// corrected to Redis'; zero if not known.
	Since time.Time
	// DeliveryID is one of those that failed, to look at.
	DeliveryID string
}

// pools in the order in which they are shown.
var pools = []string{"fast", "slow"}

// fleetOf puts reports together.
func fleetOf(reports []schedule.WorkerReport) Fleet {
	f := Fleet{Known: true, Workers: reports}
	used := map[string]int{}
	recent := map[schedule.RecentAttempts]int64{} // by class and outcome, Count 0
	failing := map[string]*Failing{}
	busySlots := 0.0 // attempts a second, each with its slot's time: what SlotSeconds is weighed by
	for _, r := range reports {
		f.Slots += r.Slots
		f.Used += r.Used()
		f.SlowLimit += r.Limits.Slow
		f.RetryLimit += r.Limits.Retry
		f.RedriveLimit += r.Limits.Redrive
		f.PerSecond += r.PerSecond
		busySlots += r.PerSecond * r.SlotSeconds
		f.RedisLatency = max(f.RedisLatency, time.Duration(r.RedisSeconds*float64(time.Second)))
		f.FailingTotal = max(f.FailingTotal, r.FailingTotal)
		f.Lately.Attempts += r.Lately.Attempts
		f.Lately.Failures += r.Lately.Failures
		for key, n := range r.InUse {
			used[key] += n
		}
		for _, a := range r.Recent {
			recent[schedule.RecentAttempts{Class: a.Class, Outcome: a.Outcome}] += a.Count
		}
		for _, one := range r.Failing {
			merge(failing, one)
		}
		group(&f, r)
	}
	for _, pool := range pools {
		for _, lane := range delivery.Lanes {
			f.Uses = append(f.Uses, Use{pool, lane, used[pool+"/"+string(lane)]})
		}
	}
	measure(&f, busySlots)
	for key, n := range recent {
		key.Count = n
		f.Recent = append(f.Recent, key)
		f.Attempts += n
		if key.Outcome != delivery.OK {
			f.Failures += n
		}
	}
	slices.SortFunc(f.Recent, func(a, b schedule.RecentAttempts) int {
		return cmp.Or(cmp.Compare(b.Count, a.Count), cmp.Compare(a.Class, b.Class), cmp.Compare(a.Outcome, b.Outcome))
	})
	rank(&f, failing)
	return f
}

// measure weighs what an attempt takes by how many each worker makes; while none are
// made, by what they took last.
func measure(f *Fleet, busySlots float64) {
	if f.PerSecond > 0 {
		f.SlotSeconds = busySlots / f.PerSecond
	} else {
		known := 0
		for _, r := range f.Workers {
			if r.SlotSeconds > 0 {
				f.SlotSeconds += r.SlotSeconds
				known++
			}
		}
		f.SlotSeconds /= float64(max(known, 1))
	}
	if f.SlotSeconds > 0 {
		f.Capacity = float64(f.Slots) / f.SlotSeconds
	}
}

func group(f *Fleet, r schedule.WorkerReport) {
	i := slices.IndexFunc(f.Groups, func(g Group) bool { return g.Version == r.Version && g.Slice == r.Slice })
	if i < 0 {
		i = len(f.Groups)
		f.Groups = append(f.Groups, Group{Version: r.Version, Slice: r.Slice})
		defer slices.SortFunc(f.Groups, func(a, b Group) int {
			return cmp.Or(cmp.Compare(a.Version, b.Version), cmp.Compare(a.Slice, b.Slice))
		})
	}
	g := &f.Groups[i]
	g.Workers++
	g.Slots += r.Slots
	g.Used += r.Used()
}

// merge adds what one worker says of a failing subscriber to what others do.
func merge(into map[string]*Failing, one schedule.FailingSubscriber) {
	f := into[one.SubscriberID]
	if f == nil {
		into[one.SubscriberID] = &Failing{
			SubscriberID: one.SubscriberID, Class: one.Class, Outcome: one.Outcome, Count: one.Count,
			Since: one.Since, DeliveryID: one.DeliveryID,
		}
		return
	}
	if one.Count > f.Count {
		f.Outcome, f.DeliveryID = one.Outcome, one.DeliveryID
	}
	f.Count += one.Count
	if f.Since.IsZero() || !one.Since.IsZero() && one.Since.Before(f.Since) {
		f.Since = one.Since
	}
}

func rank(f *Fleet, failing map[string]*Failing) {
	f.FailingTotal = max(f.FailingTotal, len(failing))
	for _, one := range failing {
		if f.Failures > 0 {
			one.Share = min(1, float64(one.Count)/float64(f.Failures))
		}
		f.Failing = append(f.Failing, *one)
	}
	slices.SortFunc(f.Failing, func(a, b Failing) int {
		return cmp.Or(cmp.Compare(b.Count, a.Count), cmp.Compare(a.SubscriberID, b.SubscriberID))
	})
	f.Failing = f.Failing[:min(len(f.Failing), maxFailing)]
}

// failShare is the part of the attempts that fails now: what the minute says, and the last
// 10 s do not gainsay. With breakers open these may have next to no attempts.
func (f Fleet) failShare() float64 {
	minute := share(f.Failures, f.Attempts)
	if f.Lately.Attempts < fewFailures {
		return minute
	}
	return min(minute, share(f.Lately.Failures, f.Lately.Attempts))
}

// busy is the part of the slots in use, 0 to 1; 0 without any.
func (f Fleet) busy() float64 { return share(f.Used, f.Slots) }

// inLane is how many slots a lane has in use, in both pools.
func (f Fleet) inLane(lane delivery.Lane) (n int) {
	for _, u := range f.Uses {
		if u.Lane == lane {
			n += u.Used
		}
	}
	return n
}

// inPool is how many slots a pool has in use.
func (f Fleet) inPool(pool string) (n int) {
	for _, u := range f.Uses {
		if u.Pool == pool {
			n += u.Used
		}
	}
	return n
}

// share is n of all, 0 where there is nothing to have a share of.
func share[N int | int64 | float64](n, all N) float64 {
	if all <= 0 {
		return 0
	}
	return float64(n) / float64(all)
}

package dispatch

import (
	"github.com/fanout/fanout/internal/delivery"
	"github.com/fanout/fanout/internal/schedule"
)

// slots counts leases held, by lane. The loop's mutex guards it.
type slots struct {
	total int
	limit map[delivery.Lane]int
	used  map[delivery.Lane]int
}

// newSlots gives fresh work all slots, and the other lanes a share that keeps a
// storm of retries, or an operator's redrive, from shutting new events out.
func newSlots(o Options) slots {
	part := func(share float64) int {
		return min(max(int(float64(o.Slots)*share), 1), o.Slots)
	}
	return slots{
		total: o.Slots,
		limit: map[delivery.Lane]int{
			delivery.Fresh: o.Slots, delivery.Retry: part(o.RetryShare), delivery.Redrive: part(o.RedriveShare),
		},
		used: map[delivery.Lane]int{},
	}
}

// free is how many leases may be added in all.
func (s slots) free() int {
	free := s.total
	for _, n := range s.used {
		free -= n
	}
	return free
}

// rooms is what may be leased now.
func (s slots) rooms() schedule.Rooms {
	free := s.free()
	lane := func(l delivery.Lane) int { return max(min(free, s.limit[l]-s.used[l]), 0) }
	return schedule.Rooms{
		Total: free,
		Fresh: lane(delivery.Fresh), Retry: lane(delivery.Retry), Redrive: lane(delivery.Redrive),
	}
}

// split deals rooms out to partitions by weight (each at least 1). What is handed
// out never sums to more than there is, in any lane.
func split(r schedule.Rooms, weights []int) []schedule.Rooms {
	total, fresh := share(r.Total, weights), share(r.Fresh, weights)
	retry, redrive := share(r.Retry, weights), share(r.Redrive, weights)
	out := make([]schedule.Rooms, len(weights))
	for i, t := range total {
		out[i] = schedule.Rooms{
			Total: t, Fresh: min(t, fresh[i]), Retry: min(t, retry[i]), Redrive: min(t, redrive[i]),
		}
	}
	return out
}

// share deals n out in proportion, all of it, and at least 1 to each while it
// lasts. The first are served first; callers rotate who that is.
func share(n int, weights []int) []int {
	out := make([]int, len(weights))
	rest := 0
	for _, w := range weights {
		rest += w
	}
	for i, w := range weights {
		after := len(weights) - 1 - i
		k := min(max(n*w/rest, 1), max(n-after, 1), n)
		out[i] = k
		n, rest = n-k, rest-w
	}
	return out
}

package oncall

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/fanout/fanout/internal/delivery"
	"github.com/fanout/fanout/internal/schedule"
)

// Rings keep the history; *schedule.Engine does.
type Rings interface {
	// KeepPoint MUST keep one point a period, whoever calls and however often.
	KeepPoint(ctx context.Context, ring schedule.Ring, at time.Time, point []byte) error
	// Points MUST return what was kept, oldest first, none older than the ring is long.
	Points(ctx context.Context, ring schedule.Ring) ([][]byte, error)
}

// The two rings.
var (
	fineRing   = schedule.Ring{Name: "fine", Every: FineEvery, Places: int(FineFor / FineEvery)}
	coarseRing = schedule.Ring{Name: "coarse", Every: CoarseEvery, Places: int(CoarseFor / CoarseEvery)}
)

// pointJSON is a point as it is kept: short names, since Redis holds 2,160 of them. Times
// and ages are ms.
type pointJSON struct {
	At      int64                  `json:"t"`
	Classes map[string]classPoints `json:"c"`
	Ledger  [4]int64               `json:"l"` // accepted, delivered, dead, pending
	Held    int64                  `json:"h,omitempty"`
	Letters int64                  `json:"x,omitempty"`
	Tried   [2]int64               `json:"a"` // attempts, failures
	Slots   [3]int                 `json:"s"` // all, used, used by retries
}

// classPoints are eligible, limited, held; attempts, failures.
type classPoints [5]int64

func encodePoint(p Point) ([]byte, error) {
	j := pointJSON{
		At: p.At.UnixMilli(), Classes: map[string]classPoints{}, Ledger: [4]int64{p.Accepted, p.Delivered, p.Dead, p.Pending},
		Held: p.Held, Letters: p.DeadLetters, Tried: [2]int64{p.Attempts, p.Failures}, Slots: [3]int{p.Slots, p.Used, p.RetryUsed},
	}
	for _, c := range p.Classes {
		j.Classes[c.Name] = classPoints{
			c.Eligible.Milliseconds(), c.Limited.Milliseconds(), c.Held.Milliseconds(), c.Attempts, c.Failures,
		}
	}
	b, err := json.Marshal(j)
	if err != nil {
		return nil, fmt.Errorf("write a point: %w", err)
	}
	return b, nil
}

// decodePoint reads one; its classes are in the order of names, which is that of the
// configured ones. A class that is no longer configured is left out.
func decodePoint(b []byte, names []string) (Point, error) {
	var j pointJSON
	if err := json.Unmarshal(b, &j); err != nil {
		return Point{}, fmt.Errorf("read a point: %w", err)
	}
	p := Point{
		At:       time.UnixMilli(j.At).UTC(),
		Accepted: j.Ledger[0], Delivered: j.Ledger[1], Dead: j.Ledger[2], Pending: j.Ledger[3],
		Held: j.Held, DeadLetters: j.Letters, Attempts: j.Tried[0], Failures: j.Tried[1],
		Slots: j.Slots[0], Used: j.Slots[1], RetryUsed: j.Slots[2],
	}
	ms := func(n int64) time.Duration { return time.Duration(n) * time.Millisecond }
	for _, name := range names {
		if c, ok := j.Classes[name]; ok {
			p.Classes = append(p.Classes, PointClass{name, ms(c[0]), ms(c[1]), ms(c[2]), c[3], c[4]})
		}
	}
	return p, nil
}

// pointOf is a snapshot as it is kept.
func pointOf(s Snapshot) Point {
	p := Point{
		At: s.At, Accepted: s.Ledger.Accepted, Delivered: s.Ledger.Delivered, Dead: s.Ledger.Dead, Pending: s.Ledger.Pending,
		Held: s.Held, DeadLetters: s.DeadLetters, Attempts: s.Fleet.Attempts, Failures: s.Fleet.Failures,
		Slots: s.Fleet.Slots, Used: s.Fleet.Used, RetryUsed: s.Fleet.inLane(delivery.Retry),
	}
	for _, c := range s.Classes {
		pc := PointClass{Name: c.Name}
		for _, l := range c.Lanes {
			pc.Eligible, pc.Limited, pc.Held = max(pc.Eligible, l.Eligible), max(pc.Limited, l.Limited), max(pc.Held, l.Held)
		}
		for _, a := range s.Fleet.Recent {
			if a.Class == c.Name {
				pc.Attempts += a.Count
				if a.Outcome != delivery.OK {
					pc.Failures += a.Count
				}
			}
		}
		p.Classes = append(p.Classes, pc)
	}
	return p
}

// recall reads the history at the start and after a time when nothing was seen: others
// may have kept it meanwhile. Without it the page has what this process sees from now on.
func (o *OnCall) recall(ctx context.Context) {
	if o.rings == nil {
		return
	}
	var past Past
	names := make([]string, 0, len(o.slo)+1)
	for _, c := range o.latest.Classes { // its classes are fixed by New
		names = append(names, c.Name)
	}
	for _, r := range []struct {
		ring schedule.Ring
		to   *[]Point
	}{{fineRing, &past.Fine}, {coarseRing, &past.Coarse}} {
		points, err := o.rings.Points(ctx, r.ring)
		if err != nil {
			o.log.WarnContext(ctx, "cannot read the history", "error", err)
			return // and the next sample tries again
		}
		for _, b := range points {
			p, err := decodePoint(b, names)
			if err != nil {
				o.log.WarnContext(ctx, "a point of the history cannot be read", "error", err)
				continue
			}
			*r.to = append(*r.to, p)
		}
	}
	o.mu.Lock()
	o.past = past
	o.mu.Unlock()
	o.recalled = true
}

// remember adds a snapshot to the history, once a period of each ring.
func (o *OnCall) remember(ctx context.Context, s Snapshot) {
	p := pointOf(s)
	o.mu.Lock()
	fine, isFine := appendPoint(o.past.Fine, p, fineRing)
	coarse, isCoarse := appendPoint(o.past.Coarse, p, coarseRing)
	o.past = Past{fine, coarse}
	o.mu.Unlock()
	if o.rings == nil || !isFine && !isCoarse {
		return
	}
	b, err := encodePoint(p)
	if err == nil && isFine {
		err = o.rings.KeepPoint(ctx, fineRing, s.At, b)
	}
	if err == nil && isCoarse {
		err = o.rings.KeepPoint(ctx, coarseRing, s.At, b)
	}
	if err != nil && ctx.Err() == nil {
		o.log.WarnContext(ctx, "cannot keep the history", "error", err)
	}
}

// appendPoint adds a point if it is the first of its period, and drops what is older than
// the ring is long. The slice given is not written to where others may read it.
func appendPoint(points []Point, p Point, ring schedule.Ring) ([]Point, bool) {
	period := func(t time.Time) int64 { return t.UnixMilli() / ring.Every.Milliseconds() }
	if n := len(points); n > 0 && period(points[n-1].At) >= period(p.At) {
		return points, false
	}
	for len(points) > 0 && period(points[0].At) <= period(p.At)-int64(ring.Places) {
		points = points[1:]
	}
	return append(points, p), true
}

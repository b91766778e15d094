package oncall

import "time"

// window is how far back the page's sparklines reach.
const window = 5 * time.Minute

// point is one sample of every class's oldest eligible age, in the order of
// Snapshot.Classes.
type point struct {
	at   time.Time
	ages []time.Duration
}

// history is a ring of the last points. It lives in the process: a restart
// forgets it, Prometheus does not.
type history struct {
	ring []point
	next int // where the next point goes
}

// newHistory has room for one window of samples, so its memory is bounded by the
// shortest interval allowed.
func newHistory(every time.Duration) *history {
	return &history{ring: make([]point, int(window/every)+1)}
}

func (h *history) add(s Snapshot) {
	p := point{at: s.At, ages: make([]time.Duration, len(s.Classes))}
	for i, c := range s.Classes {
		p.ages[i] = c.Oldest().Eligible
	}
	h.ring[h.next] = p
	h.next = (h.next + 1) % len(h.ring)
}

// since copies the points from the given time on, oldest first. The points
// themselves are never changed.
func (h *history) since(t time.Time) []point {
	out := make([]point, 0, len(h.ring))
	for i := range h.ring {
		if p := h.ring[(h.next+i)%len(h.ring)]; !p.at.IsZero() && !p.at.Before(t) {
			out = append(out, p)
		}
	}
	return out
}

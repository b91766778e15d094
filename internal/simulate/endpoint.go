package simulate

import (
	"math"
	"time"

	"github.com/fanout/fanout/internal/delivery"
)

// This is endpoint.lua: what an attempt says of its endpoint, and what follows for the
// subscriber. Times are ms, as there.

const (
	firstRest   = 1000
	longestRest = 120_000
	// capUnit is the fineness of an in-flight cap.
	capUnit = 10_000
	// slowAfter is the average latency from which a subscriber counts as slow, ms.
	slowAfter = 1000
)

// rest is how long the breaker stays open, by a draw from 0 to 999,999.
func (s *subscriber) rest(draw int) int64 {
	window := min(firstRest*math.Pow(2, float64(min(s.step, 10))), longestRest)
	for i := max(0, len(s.id)-4); i < len(s.id); i++ {
		draw = (draw*31 + int(s.id[i])) % 1_000_000
	}
	return int64(math.Floor(window/2 + window/2*float64(draw)/1_000_000))
}

// succeed takes in a 2xx, whosever it is.
func (m *scheduler) succeed(s *subscriber) {
	if s.open > 0 {
		s.open, s.step, s.probe, s.last, s.changed = 0, 0, 0, 0, m.now
		s.fails, s.win, s.lat = 0, capUnit, 0
		return
	}
	s.fails = 0
	if most := s.max * capUnit; s.win < most {
		rate := 1
		if s.cut == 0 {
			rate = 2
		}
		s.win = min(most, s.win+rate*capUnit*capUnit/s.win)
	}
}

// fail takes in a failure blamed on the endpoint.
func (m *scheduler) fail(s *subscriber, leased int64, probe bool, draw int) {
	s.troubled = true
	if leased > s.cut {
		s.win, s.cut = max(capUnit, min(s.win, s.max*capUnit)/2), m.now
	}
	if s.open > 0 {
		if probe {
			s.open = m.now + s.rest(draw)
			s.step++
		}
		return
	}
	s.fails++
	if s.fails >= s.breakerFailures {
		s.open = m.now + s.rest(draw)
		s.step++
		s.fails, s.changed = 0, m.now
	}
}

// observe takes in what an attempt came to: how long it took and for how long the
// endpoint asked to be left alone, when it was leased, and whether it was the probe.
func (m *scheduler) observe(s *subscriber, a answer, disable bool, leased int64, probe bool, draw int) {
	blame := a.outcome.Blame()
	if blame == delivery.Us || (leased <= s.changed && s.open == 0) {
		return
	}
	took := a.took.Milliseconds()
	if s.lat > 0 {
		took = (3*s.lat + took) / 4
	}
	s.lat = max(1, took)
	switch blame {
	case delivery.NoBlame:
		m.succeed(s)
	case delivery.Endpoint:
		m.fail(s, leased, probe, draw)
		if a.wait > 0 {
			s.throttled = max(s.throttled, m.now+a.wait.Milliseconds())
		}
		s.disabled = s.disabled || disable
	case delivery.Payload, delivery.Us:
	}
}

// answer is what an attempt comes to.
type answer struct {
	outcome delivery.Outcome
	status  int // 0 if none came
	took    time.Duration
	wait    time.Duration // what the endpoint asked for by Retry-After, within the policy's cap
}

package simulate

import (
	"math"
	"time"

	"github.com/fanout/fanout/internal/delivery"
)

// draws is a stream of random numbers of one attempt (splitmix64, Steele et al. 2014).
// It depends on the seed, the delivery and the attempt alone: under another policy the
// same attempt meets the same fate, so that two policies differ by what they do and not by
// luck.
type draws uint64

func drawsOf(seed, key uint64, attempt int) draws {
	return draws(seed*0x9e3779b97f4a7c15 ^ key*0xbf58476d1ce4e5b9 ^ uint64(attempt)*0x94d049bb133111eb) //nolint:gosec // from 1
}

// unit draws from (0, 1).
func (d *draws) unit() float64 {
	*d += 0x9e3779b97f4a7c15
	h := uint64(*d)
	h = (h ^ h>>30) * 0xbf58476d1ce4e5b9
	h = (h ^ h>>27) * 0x94d049bb133111eb
	h ^= h >> 31
	return (float64(h>>11) + 0.5) / (1 << 53)
}

// normal draws from the standard normal distribution (Box and Muller 1958).
func (d *draws) normal() float64 {
	u, v := d.unit(), d.unit()
	return math.Sqrt(-2*math.Log(u)) * math.Cos(2*math.Pi*v)
}

// sampler draws from a Latency.
type sampler struct {
	median, sigma float64 // us
}

// z99 is the 99th percentile of the standard normal distribution.
const z99 = 2.3263478740408408

func newSampler(l Latency) sampler {
	s := sampler{median: float64(time.Duration(l.P50).Nanoseconds()) / 1000}
	if l.P99 > l.P50 {
		s.sigma = math.Log(float64(l.P99)/float64(l.P50)) / z99
	}
	return s
}

// draw is in us.
func (s sampler) draw(d *draws) int64 {
	if s.sigma == 0 {
		return int64(s.median)
	}
	return int64(s.median * math.Exp(s.sigma*d.normal()))
}

// window is an outage as an endpoint has it, us.
type window struct {
	from, to   int64
	does       Manner
	retryAfter time.Duration
}

// atOnce is how long a refusal takes, or an error out of order, us.
const atOnce = 1000

// answerTo is what a request comes to that arrives at that time, us since the run began.
func (s *subscriber) answerTo(at int64, d *draws) answer {
	for _, w := range s.windows {
		if at < w.from || at >= w.to {
			continue
		}
		switch w.does {
		case Refuse:
			return answer{outcome: delivery.Connect, took: atOnce * time.Microsecond}
		case Hang:
			return s.timeout()
		case Limits:
			return answer{
				outcome: delivery.Classify(429), status: 429, took: atOnce * time.Microsecond,
				wait: min(w.retryAfter, time.Duration(s.retryAfterCap)*time.Microsecond),
			}
		case Fails:
			return answer{outcome: delivery.Classify(500), status: 500, took: atOnce * time.Microsecond}
		}
	}
	took, status := s.latency.draw(d), 200
	if s.failures.Share > 0 && d.unit() < s.failures.Share {
		status = s.failures.Status
	}
	if took >= s.timeoutMicros {
		return s.timeout()
	}
	return answer{outcome: delivery.Classify(status), status: status, took: time.Duration(took) * time.Microsecond}
}

func (s *subscriber) timeout() answer {
	return answer{outcome: delivery.Timeout, took: time.Duration(s.timeoutMicros) * time.Microsecond}
}

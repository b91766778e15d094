package e2e

import (
	"bytes"
	"net/http"
	"runtime"
	"runtime/metrics"
	"sync/atomic"
	"testing"
	"time"
)

// dribble answers 200 and then a byte at a time, for ever.
func dribble(ended *atomic.Int64) answer {
	return func(_ int, w http.ResponseWriter, r *http.Request) {
		defer ended.Add(1)
		tick := time.NewTicker(100 * time.Millisecond)
		defer tick.Stop()
		flush := http.NewResponseController(w)
		for r.Context().Err() == nil {
			if _, err := w.Write([]byte("x")); err != nil {
				return
			}
			if flush.Flush() != nil {
				return
			}
			select {
			case <-tick.C:
			case <-r.Context().Done():
			}
		}
	}
}

// endless writes a chunked body as fast as it is taken, and counts its bytes.
func endless(status int, written *atomic.Int64) answer {
	chunk := bytes.Repeat([]byte("endless "), 4<<10)
	return func(_ int, w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(status)
		for {
			n, err := w.Write(chunk)
			written.Add(int64(n))
			if err != nil {
				return
			}
		}
	}
}

// While more endpoints hang than there are slots, one that is known to answer is
// served: those that are slow or unknown share three of the five.
func TestOthersAreServedBesideHungEndpoints(t *testing.T) {
	t.Parallel()
	s := start(t, func(c *setup) { c.slots = 5 })
	open := make(gate)
	slow, well := s.endpoint(held(open, always(http.StatusOK))), s.endpoint(always(http.StatusOK))
	s.subscribe(well.URL, "well", quick)
	s.post("known", "well", `{}`)
	s.delivery("known", "delivered")
	for range 8 {
		s.subscribe(slow.URL, "slow", `{"attempt_timeout":"60s"}`)
	}
	s.postMany(4, "slow-", "slow")
	s.await(slow, 3)
	for _, id := range s.postMany(20, "well-", "well") {
		s.delivery(id, "delivered")
	}
	s.saw(slow, 3) // still the same three
	close(open)
	if l := s.balanced(); l.Delivered != 32+21 {
		t.Errorf("ledger %+v, want 53 delivered", l)
	}
}

// One endpoint that hangs, with as many requests as it may get, leaves slots free.
func TestOneHungEndpointLeavesSlotsFree(t *testing.T) {
	t.Parallel()
	const slots, most = 20, 10 // a subscriber may hold as many as are free
	s := start(t, func(c *setup) { c.slots, c.cap = slots, 100 })
	open := make(gate)
	slow, well := s.endpoint(held(open, always(http.StatusOK))), s.endpoint(always(http.StatusOK))
	s.subscribe(slow.URL, "slow", `{"max_in_flight":100,"attempt_timeout":"60s"}`)
	s.subscribe(well.URL, "well", quick)
	s.postMany(20, "slow-", "slow")
	s.await(slow, most)
	for _, id := range s.postMany(20, "well-", "well") { // nobody knows it yet
		s.delivery(id, "delivered")
	}
	s.saw(slow, most) // still the same ten
	close(open)
	if l := s.balanced(); l.Delivered != 40 {
		t.Errorf("ledger %+v, want 40 delivered", l)
	}
}

// A dispatcher whose only slot was taken by an endpoint that hangs, or that
// dribbles after a good status line, has it back at the attempt timeout.
func TestHungEndpointsFreeTheirSlots(t *testing.T) {
	t.Parallel()
	var dribbled atomic.Int64
	for _, c := range []struct {
		name, policy, state string
		answer              answer
	}{
		{"never answers", `{"attempt_timeout":"400ms","max_attempts":1}`, "dead", hang},
		// Its status line must come within the timeout on the slowest machine.
		{"dribbles after 200", `{"attempt_timeout":"3s","max_attempts":1}`, "delivered", dribble(&dribbled)},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			s := start(t, func(c *setup) { c.slots = 1 })
			bad, well := s.endpoint(c.answer), s.endpoint(always(http.StatusOK))
			s.subscribe(bad.URL, "bad", c.policy)
			s.subscribe(well.URL, "well", quick)
			s.post("bad", "bad", `{}`)
			s.await(bad, 1)
			s.post("well", "well", `{}`)
			s.delivery("well", "delivered")
			v := s.delivery("bad", c.state)
			if took := v.EndedAt.Sub(v.FirstAttemptAt); took < 390*time.Millisecond {
				t.Errorf("ended after %s, before its attempt timeout", took)
			}
			s.saw(bad, 1)
			s.saw(well, 1)
		})
	}
	t.Cleanup(func() {
		if dribbled.Load() != 1 {
			t.Error("the dribbling endpoint was not cut off")
		}
	})
}

// An endless body is cut at its cap: the status is the verdict, little is read,
// and less is kept.
func TestEndlessBodyIsCut(t *testing.T) {
	t.Parallel()
	s := start(t)
	for _, c := range []struct {
		name, state string
		status      int
	}{
		{"good", "delivered", http.StatusOK},
		{"bad", "dead", http.StatusInternalServerError},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			s := s.in(t)
			var written atomic.Int64
			e := s.endpoint(endless(c.status, &written))
			s.subscribe(e.URL, c.name, quick)
			s.post(c.name, c.name, `{}`)
			v := s.delivery(c.name, c.state)
			for _, a := range v.Evidence {
				if a.Outcome != "http_5xx" || len(a.Excerpt) > 1<<10 || len(a.Excerpt) < 1<<9 {
					t.Errorf("%s, an excerpt of %d bytes", a.Outcome, len(a.Excerpt))
				}
			}
			// What the two kernels' buffers take beyond the 16 KiB that are read.
			if n := written.Load() / int64(len(e.requests())); n > 16<<20 {
				t.Errorf("%d bytes were taken from an endless body", n)
			}
		})
	}
}

// Memory stays flat under endless bodies. Not parallel: it measures the process,
// in which the parallel tests wait meanwhile.
func TestEndlessBodiesKeepMemoryFlat(t *testing.T) { //nolint:paralleltest // see above
	s := start(t)
	var written atomic.Int64
	e := s.endpoint(endless(http.StatusOK, &written))
	s.subscribe(e.URL, "flood", `{"max_in_flight":50,"attempt_timeout":"20s"}`)
	heap := func() uint64 {
		m := []metrics.Sample{{Name: "/memory/classes/heap/objects:bytes"}}
		metrics.Read(m)
		return m[0].Value.Uint64()
	}
	runtime.GC() //nolint:revive // so that the growth is not what others left behind
	before, peak := heap(), uint64(0)
	s.postMany(100, "flood-", "flood")
	s.until("all are delivered", func() bool {
		peak = max(peak, heap())
		return s.sample().Ledger.Delivered == 100
	})
	t.Logf("heap %d KiB before, %d KiB at its peak, %d MiB written", before>>10, peak>>10, written.Load()>>20)
	if peak > before+64<<20 {
		t.Errorf("the heap grew from %d to %d MiB", before>>20, peak>>20)
	}
}

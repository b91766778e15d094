package oncall

import (
	"flag"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"github.com/redis/go-redis/v9"

	"github.com/fanout/fanout/internal/delivery"
	"github.com/fanout/fanout/internal/schedule"
	"github.com/fanout/fanout/test/redistest"
)

var (
	scalePending     = flag.Int("oncall.pending", 20_000, "deliveries that wait in TestCostOfASample")
	scaleSubscribers = flag.Int("oncall.subscribers", 1_000, "subscribers that they are for")
)

// A look at Redis takes it less than 20 ms, and a scrape less than 50 ms, whatever waits.
// `make oncall-scale` measures a million deliveries for 10,000 subscribers.
func TestCostOfASample(t *testing.T) {
	rdb := redistest.Server(t).Client()
	e, err := schedule.Open(t.Context(), rdb, schedule.Options{Partitions: 4, InitialCap: 100})
	if err != nil {
		t.Fatal(err)
	}
	reg := prometheus.NewRegistry()
	o := newOnCall(t, e, Options{
		Classes: map[string]time.Duration{"standard": time.Minute}, Registerer: reg, Rings: e, Memory: e.Memory,
	})
	const looks = 50
	before := redisTime(t, rdb)
	for range looks {
		o.sample(t.Context())
	}
	empty := (redisTime(t, rdb) - before) / looks

	began := time.Now()
	crowded(t, e)
	t.Logf("%d deliveries for %d subscribers were made in %s", *scalePending, *scaleSubscribers, time.Since(began).Round(time.Second))
	before = redisTime(t, rdb)
	for range looks {
		o.sample(t.Context())
	}
	full := (redisTime(t, rdb) - before) / looks
	s, _ := o.Latest()
	if s.Ledger.Pending < int64(*scalePending)*9/10 || s.OnHold == 0 || s.Release.Due[2] == 0 || s.DeadLetters == 0 {
		t.Fatalf("it is not the crowd that was meant: %+v", s)
	}
	h := promhttp.HandlerFor(reg, promhttp.HandlerOpts{})
	var slowest time.Duration
	for range looks {
		begun := time.Now()
		h.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest(http.MethodGet, "/metrics", http.NoBody))
		slowest = max(slowest, time.Since(begun))
	}
	t.Logf("a look takes Redis %s of CPU, with nothing there %s; the slowest of %d scrapes took %s",
		full, empty, looks, slowest)
	if full > 20*time.Millisecond || slowest > 50*time.Millisecond {
		t.Error("a look may take 20 ms, a scrape 50 ms")
	}
}

// crowded makes subscribers with deliveries in every state: most wait for their first
// attempt, some for a retry, some on hold, some are dead.
func crowded(t *testing.T, e *schedule.Engine) {
	t.Helper()
	ids := make([]string, *scaleSubscribers)
	byPart := map[int][]schedule.Target{}
	for i := range ids {
		ids[i] = fmt.Sprintf("sub_%026d", i)
		terms := schedule.Terms{Class: "standard", MaxInFlight: 16, LeaseTime: 25 * time.Second, Paused: i%100 == 0}
		if _, err := e.PutConfig(t.Context(), ids[i], 0, []byte("{}"), terms, schedule.Edited); err != nil {
			t.Fatal(err)
		}
		p := e.PartitionOf(ids[i])
		byPart[p] = append(byPart[p], schedule.Target{SubscriberID: ids[i], MaxAge: 24 * time.Hour})
	}
	now, err := e.Now(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	var all sync.WaitGroup
	for p, targets := range byPart {
		all.Go(func() {
			for n := range *scalePending / *scaleSubscribers {
				for from := 0; from < len(targets); from += 256 {
					part := targets[from:min(from+256, len(targets))]
					if err := e.Enqueue(t.Context(), fmt.Sprintf("evt_%026d", n), now, e.ExpandBy(now), p, part); err != nil {
						t.Error(err)
						return
					}
				}
			}
		})
	}
	all.Wait()
	attempt(t, e)
}

// attempt makes a few hundred attempts of each partition fail, for good or for now.
func attempt(t *testing.T, e *schedule.Engine) {
	t.Helper()
	for p := range e.Partitions() {
		rooms := schedule.Rooms{Total: 150, Fresh: 150, Retry: 150, Redrive: 150, Slow: 150}
		replies, err := e.Lease(t.Context(), []schedule.LeaseRequest{{Partition: p, Worker: "w", Seq: 1, Rooms: rooms, Free: 10_000}})
		if err != nil {
			t.Fatal(err)
		}
		var vs []schedule.Verdict
		for i, l := range replies[0].Leased {
			v := schedule.Verdict{
				ID: l.ID, Fence: l.Fence(), Outcome: delivery.HTTP5xx, Attempt: []byte("{}"),
				Decision: delivery.Decision{Next: delivery.Scheduled, DueAt: replies[0].Now.Add(time.Duration(i%15) * time.Minute)},
			}
			if i%5 == 0 {
				v.Next, v.Reason, v.Body = delivery.Dead, delivery.Exhausted, &schedule.Body{Bytes: []byte("{}")}
			}
			vs = append(vs, v)
		}
		if _, err := e.Settle(t.Context(), p, vs); err != nil {
			t.Fatal(err)
		}
	}
}

// redisTime is the CPU time that Redis has used.
func redisTime(t *testing.T, rdb redis.UniversalClient) time.Duration {
	t.Helper()
	text, err := rdb.Info(t.Context(), "cpu").Result()
	if err != nil {
		t.Fatal(err)
	}
	sum := 0.0
	for line := range strings.Lines(text) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), ":")
		if name == "used_cpu_sys" || name == "used_cpu_user" {
			n, err := strconv.ParseFloat(value, 64)
			if err != nil {
				t.Fatal(err)
			}
			sum += n
		}
	}
	return time.Duration(sum * float64(time.Second))
}

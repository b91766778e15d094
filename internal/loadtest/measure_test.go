package loadtest

import (
	"bytes"
	"encoding/json"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/fanout/fanout/internal/delivery"
)

func TestPercentileIsTheNearestRank(t *testing.T) {
	t.Parallel()
	var hundred []time.Duration
	for i := range 100 {
		hundred = append(hundred, time.Duration(i+1))
	}
	for _, c := range []struct {
		of   []time.Duration
		p    float64
		want time.Duration
	}{
		{nil, 99, 0},
		{hundred[:1], 0, 1},
		{hundred[:1], 99, 1},
		{hundred[:2], 50, 1},
		{hundred[:3], 50, 2},
		{hundred, 50, 50},
		{hundred, 99, 99},
		{hundred, 100, 100},
		{hundred[:50], 99, 50},
	} {
		if got := percentile(c.of, c.p); got != c.want {
			t.Errorf("p%g of %d values is %d, want %d", c.p, len(c.of), got, c.want)
		}
	}
}

// What has not arrived by the cut is missing, and as old as the cut makes it; it
// never makes a figure better.
func TestAgesCountWhatIsMissing(t *testing.T) {
	t.Parallel()
	g := &group{name: "g", endpoints: []*endpoint{{subscriber: "sub_1", index: map[string]int32{}}}}
	e := g.endpoints[0]
	e.group = g
	take := func(ev event, at time.Duration) {
		id := delivery.NewID(ev.id, e.subscriber)
		e.arrive(id, at, 1)
		e.take(id, at)
	}
	const s = time.Second
	events := []event{
		{id: "before", audience: everyone, accepted: 0},
		{id: "taken", audience: everyone, accepted: s},
		{id: "late", audience: "g", accepted: s},
		{id: "never", audience: "g", accepted: 2 * s},
		{id: "refused", audience: "g", accepted: 4 * s},
		{id: "other", audience: "h", accepted: 2 * s},
		{id: "after", audience: everyone, accepted: 5 * s},
	}
	take(events[1], s+20*time.Millisecond)
	take(events[2], 7*s)
	e.arrive(delivery.NewID("refused", "sub_1"), 4*s, 1)
	got := summarise(ages(events, g, s, 5*s, 6*s))
	if want := (Ages{Deliveries: 4, Arrived: 1, Share: 0.25, P50: 2000, P99: 5000, Max: 5000, Oldest: delivery.NewID("late", "sub_1")}); got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
	if got := summarise(nil); got != (Ages{Share: 1}) {
		t.Errorf("of nothing: %+v", got)
	}
}

func TestHitsTellRepeatsFromDuplicates(t *testing.T) {
	t.Parallel()
	e := &endpoint{group: &group{}, index: map[string]int32{}}
	e.arrive("a", 1, 1)
	e.arrive("a", 2, 2) // a retry
	e.take("a", 2)
	e.arrive("a", 3, 2) // a duplicate
	e.take("a", 3)
	if got, want := e.hit("a"), (hit{first: 1, taken: 2, requests: 3, again: 1, attempt: 2}); got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
	if got := e.hit("b"); got != (hit{}) {
		t.Errorf("of nothing: %+v", got)
	}
}

// The naive count is checked against the expectation of full jitter: with windows
// b, 2b, 4b the k-th retry comes b*(2^k-1)/2 after the first attempt on average.
func TestNaiveCountFollowsTheBackoff(t *testing.T) {
	t.Parallel()
	p := outagePolicy(false, 1)
	const begin, end = 10 * time.Second, 10*time.Second + 15*time.Minute
	total := 0
	for i := range 2000 {
		id := delivery.NewID("evt", strings.Repeat("x", i%7)+string(rune('a'+i%26))+time.Duration(i).String())
		n := naive(p, id, begin, begin, end)
		at := begin
		for attempt := 1; attempt < n; attempt++ {
			at += delivery.Backoff(p, id, attempt)
		}
		if at >= end || (n < p.MaxAttempts && at+delivery.Backoff(p, id, n) < end) {
			t.Fatalf("%s: %d attempts end at %s, the outage at %s", id, n, at, end)
		}
		total += n
	}
	// 5 s * (2^k-1)/2 passes 900 s between the 8th and the 9th retry.
	if mean := float64(total) / 2000; math.Abs(mean-9.3) > 0.5 {
		t.Errorf("a mean of %.2f attempts in 15 minutes", mean)
	}

	short := outagePolicy(true, 1)
	if err := short.Validate(); err != nil {
		t.Error(err)
	}
	for _, c := range []struct {
		what             string
		accepted         time.Duration
		attempts, maxAge int
		want             int
	}{
		{"accepted before", begin - 1, 15, 3600, 0},
		{"accepted after", end, 15, 3600, 0},
		{"a budget of one", begin, 1, 3600, 1},
		{"too old for a second", begin, 15, 0, 1},
		{"at the last moment", end - 1, 15, 3600, 1},
	} {
		p := p
		p.MaxAttempts, p.MaxAge = c.attempts, delivery.Duration(time.Duration(c.maxAge)*time.Second)
		if got := naive(p, "dlv_1", c.accepted, begin, end); got != c.want {
			t.Errorf("%s: %d requests, want %d", c.what, got, c.want)
		}
	}
}

func TestMetricsAreRead(t *testing.T) {
	t.Parallel()
	s := sample{slots: map[string]float64{}}
	for range 2 { // two processes
		err := s.read(strings.NewReader(`# HELP fanout_slots Slots in use, by lane.
# TYPE fanout_slots gauge
fanout_slots{lane="fresh"} 3
fanout_slots{lane="fresh",pool="slow"} 2
fanout_slots{lane="retry",pool="fast"} 1
fanout_slots_limit 100
fanout_retries_scheduled_total{outcome="timeout"} 4
fanout_retries_scheduled_total{outcome="http_5xx"} 1.5e+02
fanout_dead_letters_total{reason="exhausted"} 2
fanout_leases_lost_total 1
fanout_oldest_eligible_age_seconds{class="standard",lane="fresh"} 0.25
fanout_oldest_eligible_age_seconds{class="standard",lane="retry"} 1.5
go_goroutines 12
`))
		if err != nil {
			t.Fatal(err)
		}
	}
	if s.slots["fast/fresh"] != 6 || s.slots["slow/fresh"] != 4 || s.slots["fast/retry"] != 2 || len(s.slots) != 3 ||
		s.retries != 308 || s.dead != 4 || s.leasesLost != 2 || s.eligible != 1.5 {
		t.Errorf("got %+v", s)
	}
}

func TestAddressIsTakenFromTheLog(t *testing.T) {
	t.Parallel()
	for log, want := range map[string]string{
		"":                 "",
		`{"msg":"serving"`: "",
		"plain text\n{\"msg\":\"x\"}\n{\"msg\":\"serving\",\"api\":\"http://127.0.0.1:1234\",\"page\":\"p\"}\n": "127.0.0.1:1234",
		"{\"msg\":\"dispatching\",\"slots\":100,\"metrics\":\"127.0.0.1:99\"}\n":                                "127.0.0.1:99",
	} {
		if got := address([]byte(log)); got != want {
			t.Errorf("%q: got %q, want %q", log, got, want)
		}
	}
}

// fine is a report that breaks nothing.
func fine() Report {
	rep := Report{Base: leastBase}
	for _, name := range Names() {
		res := Result{Name: name, Healthy: Ages{Deliveries: 10, Arrived: 10, Share: 1, P99: 20}}
		if name == outage {
			res.Healthy.P99 = 400
			res.Outage = &Outage{
				Deliveries: 10, Requests: 20, Naive: 1000, Share: 0.02, MaxAttempts: 15, MostAttempts: 7,
				MaxInFlight: 16, MostInFlight: 16, Fresh: Ages{P99: 9}, History: Ages{P50: 9, P99: 12},
			}
		}
		switch name {
		case redriving:
			res.Redrive = fineRedrive()
		case redriveFails:
			res.Redrive = fineStops()
		}
		rep.add(res)
	}
	return rep
}

func TestEveryBoundIsHeldTo(t *testing.T) {
	t.Parallel()
	rep := fine()
	rep.judge()
	if len(rep.Broken) > 0 {
		t.Fatalf("a fine report breaks %q", rep.Broken)
	}
	const want = "calm_p99_ms=20.0 hang_p99_ms=20.0 hang_ratio=0.80 hang_delivered_share=1.0 " +
		"hang_small_ratio=0.80 hang_small_delivered_share=1.0 outage_request_share=0.0200 outage_duplicates=0 " +
		"backlog_ratio=0.80 slow_ratio=0.80 " +
		"redrive_items=100 redrive_delivered=100 redrive_twice=0 redrive_capacity=1000 redrive_calm_p99_ms=20.0 redrive_p99_ms=35.0 " +
		"redrive_ratio=1.40 redrive_seconds=0 redrive_pauses=0 " +
		"redrive_fails_items=100 redrive_fails_delivered=90 redrive_fails_twice=0 redrive_fails_422_pause_s=0.50 redrive_fails_422_sent=40 " +
		"redrive_fails_500_pause_s=0.30 redrive_fails_500_sent=12"
	if got := rep.Figures(); got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	of := func(r *Report, name string) *Result {
		for i := range r.Scenarios {
			if r.Scenarios[i].Name == name {
				return &r.Scenarios[i]
			}
		}
		t.Fatalf("no %s", name)
		return nil
	}
	for want, spoil := range map[string]func(*Report){
		"hang: the healthy subscribers' p99":      func(r *Report) { of(r, "hang").Ratio = 2.01 },
		"slow: the healthy subscribers' p99":      func(r *Report) { of(r, "slow").Ratio = 2.01 },
		"backlog: 1 of 10 deliveries":             func(r *Report) { of(r, "backlog").Healthy.Arrived-- },
		"calm: 10 of 10 deliveries":               func(r *Report) { of(r, calm).Healthy.Arrived = 0 },
		"calm: nothing was sent":                  func(r *Report) { of(r, calm).Healthy = Ages{} },
		"outage: no delivery fell due":            func(r *Report) { of(r, outage).Outage.Naive = 0 },
		"outage: 21 requests were sent":           func(r *Report) { o := of(r, outage).Outage; o.Requests, o.Share = 21, 0.021 },
		"outage: 2 of the 10 deliveries":          func(r *Report) { of(r, outage).Outage.Undelivered = 2 },
		"outage: 3 requests came after a 2xx":     func(r *Report) { of(r, outage).Outage.Duplicates = 3 },
		"outage: a delivery spent 8 of its 15":    func(r *Report) { of(r, outage).Outage.MostAttempts = 8 },
		"outage: 17 requests were at one":         func(r *Report) { of(r, outage).Outage.MostInFlight = 17 },
		"outage: fresh events were 26 ms old":     func(r *Report) { of(r, outage).Outage.Fresh.P99 = 26 },
		"hang-small: the healthy subscribers' p9": func(r *Report) { of(r, "hang-small").Ratio = 100 },
	} {
		bad := fine()
		spoil(&bad)
		bad.judge()
		if len(bad.Broken) != 1 || !strings.HasPrefix(bad.Broken[0], want) {
			t.Errorf("broken are %q, want one that begins %q", bad.Broken, want)
		}
	}
}

// A ratio is over calm's p99, or 25 ms if that is more; a share is 1 only if
// nothing is missing.
func TestFiguresHideNothing(t *testing.T) {
	t.Parallel()
	rep := Report{Base: leastBase}
	rep.add(Result{Name: calm, Healthy: Ages{P99: 40}})
	rep.add(Result{Name: "hang", Healthy: Ages{P99: 100, Deliveries: 1_000_000, Arrived: 999_999, Share: .999999}})
	if got, want := rep.Figures(), "calm_p99_ms=40.0 hang_p99_ms=100.0 hang_ratio=2.50 hang_delivered_share=0.9999"; got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	var table bytes.Buffer
	if err := rep.WriteTable(&table); err != nil || !strings.Contains(table.String(), "0.9999") {
		t.Errorf("%v\n%s", err, table.String())
	}
	if _, err := json.Marshal(fine()); err != nil {
		t.Error(err)
	}
}

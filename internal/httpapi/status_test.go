package httpapi

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/fanout/fanout/internal/delivery"
	"github.com/fanout/fanout/internal/schedule"
)

const probeID = "dlv_3f9a7k2m4n6p8q0r1s3t5v70"

// Each hold as a GET and a list show it. The note says what ends it.
func TestStatusShowsEachHold(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	since := time.UnixMilli(1764518400123)
	until := since.Add(time.Hour)
	for _, c := range []struct {
		standing schedule.Standing
		want     []Hold // without their notes
		says     []string
	}{
		{standing: schedule.Standing{}},
		{
			schedule.Standing{Holds: []schedule.Hold{schedule.Paused}},
			[]Hold{{Reason: schedule.Paused}},
			[]string{"when it is resumed"},
		},
		{
			schedule.Standing{Holds: []schedule.Hold{schedule.Disabled}},
			[]Hold{{Reason: schedule.Disabled}},
			[]string{"resumed or gets another url"},
		},
		{
			schedule.Standing{Holds: []schedule.Hold{schedule.Throttled}, ThrottledUntil: until},
			[]Hold{{Reason: schedule.Throttled, Until: until.UTC()}},
			[]string{"before " + until.UTC().Format(time.RFC3339) + ": that is as it asked"},
		},
		{
			schedule.Standing{Holds: []schedule.Hold{schedule.Breaker}, ProbeAt: until},
			[]Hold{{Reason: schedule.Breaker, Until: until.UTC()}},
			[]string{"as a probe, not before " + until.UTC().Format(time.RFC3339) + "; if"},
		},
		{ // it may go at any moment: then there is no time to tell
			schedule.Standing{Holds: []schedule.Hold{schedule.Breaker}},
			[]Hold{{Reason: schedule.Breaker}},
			[]string{"The next delivery that is due is let through as a probe"},
		},
		{
			schedule.Standing{Holds: []schedule.Hold{schedule.Paused, schedule.Breaker}, Probe: probeID},
			[]Hold{{Reason: schedule.Paused}, {Reason: schedule.Breaker, Probe: probeID}},
			[]string{"when it is resumed", "The delivery " + probeID + " is out as a probe"},
		},
	} {
		sub := r.create(minimal)
		c.standing.SubscriberID, c.standing.Cap, c.standing.InFlight = sub.ID, 2.9, 1
		c.standing.Latency, c.standing.Failures, c.standing.Pending = 84*time.Millisecond, 3, 12
		c.standing.Waiting = map[delivery.Lane]int64{delivery.Fresh: 8, delivery.Retry: 2, delivery.Redrive: 1}
		want := SubscriberStatus{
			Holds: []Hold{}, InFlight: 1, InFlightCap: 2, LatencyMs: 84, ConsecutiveFailures: 3, Pending: 12,
			Waiting: Waiting{Fresh: 8, Retry: 2, Redrive: 1},
		}
		if len(c.want) > 0 {
			c.standing.Since, want.OnHoldSince, want.Holds = since, since.UTC(), c.want
		}
		r.views.standings = map[string]schedule.Standing{sub.ID: c.standing}

		got := into[Subscriber](t, r.do("GET", "/v1/subscribers/"+sub.ID, ""), http.StatusOK)
		list := into[SubscriberList](t, r.do("GET", "/v1/subscribers?limit=200", ""), http.StatusOK)
		for _, s := range list.Data {
			if s.ID == sub.ID && !cmp.Equal(s, got) {
				t.Errorf("listed otherwise than got: %s", cmp.Diff(got, s))
			}
		}
		for i := range got.Status.Holds {
			if i < len(c.says) && !strings.Contains(got.Status.Holds[i].Note, c.says[i]) {
				t.Errorf("%s: %q does not say %q", got.Status.Holds[i].Reason, got.Status.Holds[i].Note, c.says[i])
			}
			if note := got.Status.Holds[i].Note; strings.Contains(note, "until.") || strings.Contains(note, "at until") || strings.Contains(note, "before until") {
				t.Errorf("%q points at a field", note)
			}
			got.Status.Holds[i].Note = ""
		}
		if diff := cmp.Diff(want, got.Status); diff != "" {
			t.Errorf("status (-want +got):\n%s", diff)
		}
	}
}

// A status that cannot be read: whoever asks for it is told to ask again, but a
// change that is made is not called a failure.
func TestStatusAway(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	path := "/v1/subscribers/" + r.create(minimal).ID
	r.views.err = fmt.Errorf("standings: %w", schedule.ErrUnavailable)
	for _, p := range []string{path, "/v1/subscribers"} {
		if a := r.do("GET", p, ""); wantProblem(t, a, ProblemCodeUnavailable).Code != "" && a.header.Get("Retry-After") == "" {
			t.Errorf("%s: no Retry-After", p)
		}
	}
	for i, c := range [][3]string{{"PATCH", path, `{"name":"x"}`}, {"POST", path + "/pause", ""}, {"POST", path + "/resume", ""}} {
		a := r.do(c[0], c[1], c[2], fmt.Sprintf(`If-Match: "%d"`, i+1))
		if got := into[Subscriber](t, a, http.StatusOK); got.Version != int64(i+2) || strings.Contains(a.body, `"status"`) {
			t.Errorf("%s %s: %s", c[0], c[1], a.body)
		}
	}
	// One that is deleted between the two reads has none.
	r.views.err = nil
	r.views.standings = map[string]schedule.Standing{strings.TrimPrefix(path, "/v1/subscribers/"): {}}
	if a := r.do("GET", path, ""); a.status != http.StatusOK || strings.Contains(a.body, `"status"`) {
		t.Errorf("%d: %s", a.status, a.body)
	}
}

// The status is no part of what a subscriber is: nobody can set it.
func TestStatusIsReadOnly(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	path := "/v1/subscribers/" + r.create(minimal).ID
	wantPointers(t, wantProblem(t, r.do("PATCH", path, `{"status":{"holds":[]}}`), ProblemCodeInvalidField), "/status")
}

// What a scheduler makes of an endpoint's answers, and what a resume and another URL
// make of that, with every package behind the API real.
func TestWholeStatus(t *testing.T) {
	t.Parallel()
	r, engine, stopRedis := whole(t)
	sub := r.create(`{"url":"https://a.example/","policy":{"max_attempts":50,"breaker_failures":2}}`)
	path := "/v1/subscribers/" + sub.ID
	for i := range 4 {
		into[EventReceipt](t, r.do("POST", "/v1/events", fmt.Sprintf(`{"id":"evt_%d",`, i)+post(`1`)[1:]), http.StatusAccepted)
	}
	seq := int64(0)
	answers := func(v schedule.Verdict) { seq++; settle(t, engine, sub.ID, seq, v) }
	want := func(method, path, body string, reasons ...schedule.Hold) SubscriberStatus {
		t.Helper()
		st := into[Subscriber](t, r.do(method, path, body), http.StatusOK).Status
		var got []schedule.Hold
		for _, h := range st.Holds {
			got = append(got, h.Reason)
		}
		if !cmp.Equal(got, reasons) || st.OnHoldSince.IsZero() != (len(reasons) == 0) {
			t.Errorf("%s %s: on hold for %v since %v, want %v", method, path, got, st.OnHoldSince, reasons)
		}
		return st
	}
	if st := want("GET", path, ""); st.InFlightCap != 1 || st.Waiting.Fresh != 4 || st.Pending != 4 || st.LatencyMs != 0 {
		t.Errorf("at first: %+v", st)
	}
	answers(schedule.Verdict{Outcome: delivery.HTTP5xx, Status: 500})
	if st := want("GET", path, ""); st.ConsecutiveFailures != 1 || st.Waiting.Retry != 1 || st.LatencyMs != 12 {
		t.Errorf("after a 500: %+v", st)
	}
	answers(schedule.Verdict{Outcome: delivery.HTTP429, Status: 429, RetryAfter: time.Hour})
	st := want("GET", path, "", schedule.Throttled, schedule.Breaker)
	if left := time.Until(st.Holds[0].Until); left < 50*time.Minute || left > time.Hour || st.Holds[1].Until.IsZero() {
		t.Errorf("after a 429: %+v", st)
	}
	want("POST", path+"/resume", "", schedule.Throttled, schedule.Breaker) // what the endpoint asked for
	want("PATCH", path, `{"url":"https://b.example/"}`)
	answers(schedule.Verdict{
		Outcome: delivery.Gone, Status: 410,
		Decision: delivery.Decision{Next: delivery.Dead, Reason: delivery.Gone, Disable: true},
	})
	want("GET", path, "", schedule.Disabled)
	want("POST", path+"/pause", "", schedule.Paused, schedule.Disabled)
	want("POST", path+"/resume", "")
	want("POST", path+"/resume", "")
	if v := into[Subscriber](t, r.do("GET", path, ""), http.StatusOK).Version; v != 6 {
		t.Errorf("version %d after five changes, want 6", v)
	}
	stopRedis()
	wantProblem(t, r.do("GET", path, ""), ProblemCodeUnavailable)
}

package httpapi

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/fanout/fanout/internal/delivery"
	"github.com/fanout/fanout/internal/fault"
	"github.com/fanout/fanout/internal/ingest"
	"github.com/fanout/fanout/internal/schedule"
)

// Who brings a private key is told what verifies by it, and of another secret nothing.
func TestPublicKeyIsShown(t *testing.T) {
	t.Parallel()
	const (
		private = "whsk_6Xb/dCcHpPea21PS1N9VY/NZW723CEc77N4rJCubMbfVKIDij2HKpMKkioLlX0dRqSKJp4AJ6p9lMicMFs6Kvg=="
		public  = "whpk_1SiA4o9hyqTCpIqC5V9HUakiiaeACeqfZTInDBbOir4="
	)
	r := newRig(t)
	made := into[SubscriberCreated](t, r.do("POST", "/v1/subscribers", `{"url":"https://h.example/","secret":"`+private+`"}`), 201)
	turned := into[SecretRotated](t, r.do("POST", "/v1/subscribers/"+made.ID+"/secrets", `{}`), 201)
	if made.Secrets[0].PublicKey != public || turned.Secrets[0].PublicKey != "" || turned.Secrets[1].PublicKey != public {
		t.Errorf("made %+v, rotated %+v", made.Secrets, turned.Secrets)
	}
	if seen := r.do("GET", "/v1/subscribers/"+made.ID, ""); !strings.Contains(seen.body, public) || strings.Contains(seen.body, private[:20]) {
		t.Errorf("it is seen as %s", seen.body)
	}
}

func TestRotateSecret(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	sub := r.create(minimal)
	path := "/v1/subscribers/" + sub.ID
	const own = "whsec_C2FVsBQIhrscChlQIMV+b5sSYspob7oDAAAAAAAA"

	a := r.do("POST", path+"/secrets", `{"overlap":"1h"}`)
	got := into[SecretRotated](t, a, http.StatusCreated)
	if got.Secret == sub.Secret || !strings.HasPrefix(got.Secret, "whsec_") || len(got.Secrets) != 2 ||
		!got.Secrets[0].ExpiresAt.IsZero() || got.Secrets[1].ID != sub.Secrets[0].ID {
		t.Fatalf("got %+v", got)
	}
	if left := time.Until(got.Secrets[1].ExpiresAt); left < 59*time.Minute || left > time.Hour {
		t.Errorf("the old one signs for %s more", left)
	}
	day := into[SecretRotated](t, r.do("POST", path+"/secrets", `{"secret":"`+own+`"}`), 201)
	if day.Secret != own || len(day.Secrets) != 3 {
		t.Errorf("got %+v", day)
	}
	if left := time.Until(day.Secrets[1].ExpiresAt); left < 23*time.Hour || left > 24*time.Hour {
		t.Errorf("without an overlap the old one signs for %s more, want a day", left)
	}
	seen := r.do("GET", path, "")
	if view := into[Subscriber](t, seen, 200); len(view.Secrets) != 3 || view.Secrets[0] != day.Secrets[0] || strings.Contains(seen.body, own) {
		t.Errorf("it is seen as %s", seen.body)
	}
	for range 2 {
		into[SecretRotated](t, r.do("POST", path+"/secrets", `{}`), 201)
	}
	if p := wantProblem(t, r.do("POST", path+"/secrets", `{}`), ProblemCodeTooManySecrets); !strings.Contains(p.Detail, `"overlap": "0s"`) {
		t.Errorf("%q", p.Detail)
	}
	if last := into[SecretRotated](t, r.do("POST", path+"/secrets", `{"overlap":"0s"}`), 201); len(last.Secrets) != 1 {
		t.Errorf("got %+v", last)
	}
	for body, pointer := range map[string]string{
		`{"overlap":"169h"}`: "/overlap", `{"overlap":"-1s"}`: "/overlap", `{"secret":"whsec_AAAA"}`: "/secret", `{"secret":""}`: "/secret",
	} {
		wantPointers(t, wantProblem(t, r.do("POST", path+"/secrets", body), ProblemCodeInvalidRequest), pointer)
	}
	if strings.Contains(r.log.String(), own) || strings.Contains(r.log.String(), got.Secret) {
		t.Error("the log has a secret")
	}
	r.memory.Before = func(_ context.Context, op string) error {
		if op == "put config" {
			return schedule.ErrUnavailable
		}
		return nil
	}
	if p := wantProblem(t, r.do("POST", path+"/secrets", `{}`), ProblemCodeUnavailable); !strings.Contains(p.Detail, "nobody has it") {
		t.Errorf("%q", p.Detail)
	}
}

func TestTestSubscriber(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	sub := r.create(`{"url":"https://h.example/","filter":{"types":["nothing.else"]}}`)
	path := "/v1/subscribers/" + sub.ID + "/test"
	a := r.do("POST", path, "")
	got := into[TestReceipt](t, a, http.StatusAccepted)
	if got.DeliveryID != delivery.NewID(got.EventID, sub.ID) || a.header.Get("Location") != "/v1/events/"+got.EventID || r.ingest.to != sub.ID {
		t.Errorf("got %+v, to %s, at %s", got, r.ingest.to, a.header.Get("Location"))
	}
	if p := r.ingest.last(t); p.Type != "fanout.test" || p.ShipmentID != "test" || len(p.Data) == 0 || p.OccurredAt == "" || p.ID != "" {
		t.Errorf("submitted %+v", p)
	}
	r.do("POST", path, `{"type":"shipment.delivered","data":{"b":1, "a":2}}`)
	if p := r.ingest.last(t); p.Type != "shipment.delivered" || string(p.Data) != `{"b":1, "a":2}` {
		t.Errorf("submitted %+v", p)
	}
	r.ingest.do = func(context.Context, ingest.Post) (ingest.Receipt, error) {
		return ingest.Receipt{}, &fault.Invalid{Fields: []fault.Field{{Pointer: "/type", Detail: "must be words"}}}
	}
	wantPointers(t, wantProblem(t, r.do("POST", path, `{"type":"A B"}`), ProblemCodeInvalidRequest), "/type")
	r.ingest.do = func(context.Context, ingest.Post) (ingest.Receipt, error) {
		return ingest.Receipt{}, fmt.Errorf("accept: %w", schedule.ErrUnavailable)
	}
	if p := wantProblem(t, r.do("POST", path, ""), ProblemCodeUnavailable); !strings.Contains(p.Detail, "if none arrives") {
		t.Errorf("%q", p.Detail)
	}
}

func TestPreviewSchedule(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	sub := r.create(`{"url":"https://h.example/","policy":{"max_attempts":4,"backoff_base":"10s","backoff_cap":"30s","attempt_timeout":"5s","breaker_failures":2}}`)
	path := "/v1/subscribers/" + sub.ID + "/schedule"
	got := into[SchedulePreview](t, r.do("GET", path, ""), http.StatusOK)
	if len(got.Attempts) != 4 || got.End.Reason != EndExhausted || got.End.Attempts != 4 || got.Version != 1 || got.SubscriberID != sub.ID {
		t.Fatalf("got %+v", got)
	}
	sec := func(s float64) delivery.Duration { return delivery.Duration(s * float64(time.Second)) }
	for i, want := range []ScheduledAttempt{
		{Attempt: 1},
		{Attempt: 2, Window: sec(10), Mean: sec(5), Latest: sec(15)},
		{Attempt: 3, Window: sec(20), Mean: sec(15), Latest: sec(40)},
		{Attempt: 4, Window: sec(30), Mean: sec(30), Latest: sec(75)},
	} {
		if got.Attempts[i] != want {
			t.Errorf("got %+v, want %+v", got.Attempts[i], want)
		}
	}
	if got.End.After != sec(30) || got.End.Latest != sec(80) || !strings.Contains(got.End.Note, "30s") {
		t.Errorf("ends %+v", got.End)
	}
	if got := into[SchedulePreview](t, r.do("GET", path+"?attempts=2", ""), 200); len(got.Attempts) != 2 || got.End.Attempts != 4 {
		t.Errorf("got %+v", got)
	}
	short := r.create(`{"url":"https://h.example/","policy":{"max_age":"1m"}}`)
	if got := into[SchedulePreview](t, r.do("GET", "/v1/subscribers/"+short.ID+"/schedule", ""), 200); got.End.Reason != EndExpired || !strings.Contains(got.End.Note, "max_age") {
		t.Errorf("got %+v", got.End)
	}
	for query, says := range map[string]string{"0": "from 1 to 100", "101": "from 1 to 100", "x": "from 1 to 100", "": "from 1 to 100"} {
		p := wantProblem(t, r.do("GET", path+"?attempts="+query, ""), ProblemCodeInvalidParameter)
		wantPointers(t, p, "?attempts")
		if !strings.Contains(p.Errors[0].Detail, says) {
			t.Errorf("%q: %q", query, p.Errors[0].Detail)
		}
	}
}

func TestSubscriberStats(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	sub := r.create(minimal)
	path := "/v1/subscribers/" + sub.ID + "/stats"
	if a := r.do("GET", path, ""); strings.Contains(a.body, "oldest_pending_at") || into[SubscriberStats](t, a, 200).Holds == nil {
		t.Errorf("got %s", a.body)
	}
	r.keep(sub.ID)
	r.views.standings = map[string]schedule.Standing{sub.ID: {
		SubscriberID: sub.ID, Cap: 3, InFlight: 2, Pending: 12, Latency: 84 * time.Millisecond, Delivered: 48211, Dead: 20_000,
		Holds: []schedule.Hold{schedule.Paused}, Waiting: map[delivery.Lane]int64{delivery.Fresh: 7, delivery.Retry: 3},
	}}
	got := into[SubscriberStats](t, r.do("GET", path, ""), 200)
	if got.Pending != 12 || got.InFlight != 2 || got.Delivered != 48211 || got.DeadLetters != 20_000 || got.LatencyMs != 84 || got.Waiting.Fresh != 7 ||
		len(got.Holds) != 1 || got.Holds[0].Note == "" || !got.OldestPendingAt.Equal(time.UnixMilli(1764518400123)) {
		t.Errorf("got %+v", got)
	}
	r.views.standings[sub.ID] = schedule.Standing{} // deleted between the two reads
	wantProblem(t, r.do("GET", path, ""), ProblemCodeNotFound)
	r.views.err = fmt.Errorf("standings: %w", schedule.ErrUnavailable)
	wantProblem(t, r.do("GET", path, ""), ProblemCodeUnavailable)
}

// Headers of a subscriber's own are shown by name, laid over by name, and taken away
// by a null, which means nothing anywhere else.
func TestSubscriberHeaders(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	sub := r.create(`{"url":"https://h.example/","headers":{"X-One":"s3cret1","X-Two":"s3cret2"}}`)
	path := "/v1/subscribers/" + sub.ID
	shown := func(a answer) string { return fmt.Sprint(map[string]string(into[Subscriber](t, a, 200).Headers)) }
	if got := shown(r.do("GET", path, "")); got != "map[X-One:*** X-Two:***]" {
		t.Errorf("shown as %s", got)
	}
	if got := shown(r.do("PATCH", path, `{"headers":{"X-One":null,"X-Three":"s3cret3"}}`)); got != "map[X-Three:*** X-Two:***]" {
		t.Errorf("shown as %s", got)
	}
	for _, body := range []string{`{"url":null}`, `{"policy":null}`, `{"filter":{"attributes":{"headers":null}}}`, `{"headers":{"X":{"y":null}}}`} {
		wantProblem(t, r.do("PATCH", path, body), ProblemCodeInvalidField)
	}
	for body, pointer := range map[string]string{
		`{"headers":{"Host":"x"}}`: "/headers/Host", `{"headers":{"Webhook-Id":"x"}}`: "/headers/Webhook-Id",
		`{"headers":{"X":"a\nb"}}`: "/headers/X", `{"headers":{"X":""}}`: "/headers/X",
	} {
		wantPointers(t, wantProblem(t, r.do("PATCH", path, body), ProblemCodeInvalidRequest), pointer)
	}
	if strings.Contains(r.log.String(), "s3cret") {
		t.Error("the log has a header's value")
	}
}

// TestPatchTakesAwayByNull: what need not be there goes by a null, as in a merge patch.
func TestPatchTakesAwayByNull(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	sub := r.create(`{"url":"https://h.example/","name":"parcels","headers":{"X-One":"s3cret1","X-Two":"s3cret2"}}`)
	path := "/v1/subscribers/" + sub.ID
	if got := into[Subscriber](t, r.do("PATCH", path, `{"name":null,"class":"bulk"}`), 200); got.Name != "" || got.Class != "bulk" || len(got.Headers) != 2 {
		t.Errorf("without its name: %+v", got)
	}
	if got := into[Subscriber](t, r.do("PATCH", path, `{"headers":null}`), 200); len(got.Headers) != 0 {
		t.Errorf("without its headers: %+v", got.Headers)
	}
	into[Subscriber](t, r.do("PATCH", path, `{"headers":null,"name":null}`), 200) // again is no change
	for _, body := range []string{`{"url":"https://h.example/","name":null}`, `{"url":"https://h.example/","headers":null}`} {
		wantProblem(t, r.do("POST", "/v1/subscribers", body), ProblemCodeInvalidField) // there is nothing to take away
	}
}

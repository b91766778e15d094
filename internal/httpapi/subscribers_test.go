package httpapi

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fanout/fanout/internal/delivery"
	"github.com/fanout/fanout/internal/ingest"
	"github.com/fanout/fanout/internal/schedule"
	"github.com/fanout/fanout/internal/subscriber"
)

const minimal = `{"url":"https://hooks.example.com/in?token=t0ps3cret"}`

func (r *rig) create(body string) SubscriberCreated {
	r.t.Helper()
	return into[SubscriberCreated](r.t, r.do("POST", "/v1/subscribers", body), http.StatusCreated)
}

func TestCreateSubscriber(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	const secret = "whsec_C2FVsBQIhrscChlQIMV+b5sSYspob7oDAAAAAAAA"
	a := r.do("POST", "/v1/subscribers", `{"account":"acc_1","name":"Seller 1","class":"bulk",
		"url":"https://hooks.example.com/in?token=t0ps3cret","secret":"`+secret+`","paused":true,
		"filter":{"types":["shipment.*"],"attributes":{"carrier":["dhl","ups"]}},
		"policy":{"attempt_timeout":"5s","max_attempts":8,"rate_per_second":2.5,"burst":5,"classify":{"404":"retry"}}}`)
	got := into[SubscriberCreated](t, a, http.StatusCreated)
	if a.header.Get("Location") != "/v1/subscribers/"+got.ID || a.header.Get("ETag") != `"1"` {
		t.Errorf("Location %q, ETag %q", a.header.Get("Location"), a.header.Get("ETag"))
	}
	if got.Secret != secret || got.Account != "acc_1" || got.Name != "Seller 1" || got.Class != "bulk" || !got.Paused {
		t.Errorf("got %+v", got)
	}
	p := got.Policy
	if p.AttemptTimeout != delivery.Duration(5*time.Second) || p.MaxAttempts != 8 || p.RatePerSecond != 2.5 ||
		p.Classify[404] != delivery.OverrideRetry || p.BackoffCap != delivery.DefaultPolicy().BackoffCap {
		t.Errorf("policy %+v", p)
	}
	if !strings.Contains(a.body, `"attempt_timeout":"5s"`) {
		t.Errorf("durations are not Go strings: %s", a.body)
	}
}

// The secret is in the answer to the create and nowhere else, and neither it nor
// the token in the URL is in any log.
func TestSecretIsShownOnce(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	sub := r.create(minimal)
	if !strings.HasPrefix(sub.Secret, "whsec_") || sub.Account != "default" || sub.Filter.Types[0] != "*" {
		t.Errorf("got %+v", sub)
	}
	path := "/v1/subscribers/" + sub.ID
	for _, a := range []answer{
		r.do("GET", path, ""),
		r.do("GET", "/v1/subscribers", ""),
		r.do("PATCH", path, `{"name":"n"}`),
		r.do("POST", path+"/pause", ""),
		r.do("POST", path+"/resume", ""),
		r.do("PATCH", path, `{"url":"nonsense?token=t0ps3cret","secret":"`+sub.Secret+`"}`),
		r.do("PATCH", path, `{"secret":["`+sub.Secret+`"]}`),
		r.do("POST", "/v1/subscribers", `{"url":"x","secret":"whsec_short"}`),
		r.do("GET", path+"?token=t0ps3cret", ""),
		r.do("GET", "/nowhere?token=t0ps3cret", ""),
	} {
		if strings.Contains(a.body, sub.Secret) || strings.Contains(a.body, "whsec_short") {
			t.Errorf("a secret was shown again: %s", a.body)
		}
	}
	if log := r.log.String(); strings.Contains(log, "t0ps3cret") || strings.Contains(log, "whsec_") {
		t.Errorf("the log tells a secret: %s", log)
	}
}

func TestPatchSubscriber(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	sub := r.create(`{"url":"https://a.example/","filter":{"types":["a.b"],"attributes":{"k":["v"]}},"policy":{"max_attempts":7}}`)
	path := "/v1/subscribers/" + sub.ID

	a := r.do("PATCH", path, `{"policy":{"attempt_timeout":"2s"},"filter":{"types":["c.*"]}}`, `If-Match: "1"`)
	got := into[Subscriber](t, a, http.StatusOK)
	if got.Version != 2 || a.header.Get("ETag") != `"2"` {
		t.Errorf("version %d, ETag %s", got.Version, a.header.Get("ETag"))
	}
	if got.Policy.MaxAttempts != 7 || got.Policy.AttemptTimeout != delivery.Duration(2*time.Second) ||
		got.Filter.Types[0] != "c.*" || got.Filter.Attributes["k"][0] != "v" || got.URL != "https://a.example/" {
		t.Errorf("the patch did not merge: %+v", got)
	}
	if a := r.do("GET", path, ""); a.header.Get("ETag") != `"2"` {
		t.Errorf("ETag %s after a get", a.header.Get("ETag"))
	}

	for header, status := range map[string]int{
		`If-Match: "1"`: 412, `If-Match: W/"2"`: 412, `If-Match: 2`: 400, `If-Match: "02"`: 412, `If-Match: "x"`: 412,
		`If-Match: "-1"`: 412, `If-Match: ""`: 412, `If-Match: *`: 200, `If-Match: "2"`: 200,
	} {
		// The same URL again is no change, so the version stays.
		if a := r.do("PATCH", path, `{"url":"https://a.example/"}`, header); a.status != status {
			t.Errorf("%s: status %d, want %d: %s", header, a.status, status, a.body)
		}
	}
	wantProblem(t, r.do("PATCH", path, `{"name":"x"}`, `If-Match: "1"`), ProblemCodePreconditionFailed)
	wantProblem(t, r.do("PATCH", "/v1/subscribers/sub_none", `{"name":"x"}`), ProblemCodeNotFound)
}

// Every change of a subscriber takes If-Match alike.
func TestIfMatch(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	for _, op := range [][2]string{{"PATCH", ""}, {"POST", "/pause"}, {"POST", "/resume"}, {"DELETE", ""}} {
		for header, matches := range map[string]bool{
			"": true, `*`: true, `"2"`: true, `"1", "2"`: true, ` "2" ,"9"`: true, `W/"1", "2"`: true, `"x,y", "2"`: true,
			`"1"`: false, `"3"`: false, `W/"2"`: false, `"02"`: false, `"-1"`: false, `"1", "3"`: false, `W/"2", "1"`: false,
			`""`: false, `"2,2"`: false,
		} {
			path := "/v1/subscribers/" + r.create(minimal).ID
			r.do("PATCH", path, `{"name":"second version"}`)
			body, headers := "", []string{}
			if op[0] == "PATCH" {
				body = `{"name":"third"}`
			}
			if header != "" {
				headers = append(headers, "If-Match: "+header)
			}
			a := r.do(op[0], path+op[1], body, headers...)
			if !matches {
				wantProblem(t, a, ProblemCodePreconditionFailed)
				if got := into[Subscriber](t, r.do("GET", path, ""), 200); got.Version != 2 || got.Paused {
					t.Errorf("%s %s: If-Match: %s: refused and done all the same: %+v", op[0], op[1], header, got)
				}
			} else if a.status != http.StatusOK {
				t.Errorf("%s %s: If-Match: %s: %d %s", op[0], op[1], header, a.status, a.body)
			}
		}
		// What is no tag came of no answer, and says nothing of a version.
		for _, header := range []string{`2`, `"2`, `*, "1"`, `,`, `w/"2"`, `"2" "3"`, `'2'`} {
			path := "/v1/subscribers/" + r.create(minimal).ID
			body := ""
			if op[0] == "PATCH" {
				body = `{"name":"third"}`
			}
			wantPointers(t, wantProblem(t, r.do(op[0], path+op[1], body, "If-Match: "+header), ProblemCodeInvalidParameter), "?If-Match")
			if got := into[Subscriber](t, r.do("GET", path, ""), 200); got.Version != 1 {
				t.Errorf("%s %s: If-Match: %s: refused and done all the same", op[0], op[1], header)
			}
		}
		// A subscriber that is not there is just that (RFC 9110, 13.2.1).
		for _, header := range []string{`*`, `"1"`, `"1", "2"`, `W/"1"`} {
			body := ""
			if op[0] == "PATCH" {
				body = `{}`
			}
			wantProblem(t, r.do(op[0], "/v1/subscribers/sub_none"+op[1], body, "If-Match: "+header), ProblemCodeNotFound)
		}
	}
}

// A list may come in several lines.
func TestIfMatchInLines(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	path := "/v1/subscribers/" + r.create(minimal).ID
	for second, want := range map[string]int{`"1"`: 200, `"8"`: 412} {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, r.url+path+"/resume", http.NoBody)
		if err != nil {
			t.Fatal(err)
		}
		req.Header["If-Match"] = []string{`"9"`, second}
		resp, err := http.DefaultTransport.RoundTrip(req)
		if err != nil {
			t.Fatal(err)
		}
		_ = resp.Body.Close()
		if resp.StatusCode != want {
			t.Errorf("%v: %d, want %d", req.Header["If-Match"], resp.StatusCode, want)
		}
	}
}

// To delete again is to finish the delete, whatever version it had.
func TestDeleteAgainIfMatch(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	path := "/v1/subscribers/" + r.create(minimal).ID
	for range 2 {
		into[SubscriberDeleted](t, r.do("DELETE", path, "", `If-Match: "1"`), 200)
	}
}

func TestSubscriberRefusals(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	sub := r.create(minimal)
	path := "/v1/subscribers/" + sub.ID
	for _, c := range []struct {
		name, method, path, body string
		code                     ProblemCode
		pointers                 []string
	}{
		{"no url", "POST", "/v1/subscribers", `{}`, ProblemCodeInvalidRequest, []string{"/url"}},
		{
			"all wrong", "POST", "/v1/subscribers", `{"url":"https://x","class":"gold","policy":{"max_attempts":0,"burst":3},"filter":{"types":["a..b"]}}`,
			ProblemCodeInvalidRequest,
			[]string{"/class", "/filter/types/0", "/policy/burst", "/policy/max_attempts"},
		},
		{"unknown", "POST", "/v1/subscribers", `{"uri":"https://x"}`, ProblemCodeInvalidField, []string{"/uri"}},
		{"unknown within", "POST", "/v1/subscribers", `{"url":"https://x","policy":{"max_retries":3}}`, ProblemCodeInvalidField, []string{"/policy/max_retries"}},
		{"duration as number", "POST", "/v1/subscribers", `{"policy":{"attempt_timeout":5}}`, ProblemCodeInvalidField, []string{"/policy/attempt_timeout"}},
		{"duration as words", "POST", "/v1/subscribers", `{"policy":{"max_age":"a day"}}`, ProblemCodeInvalidField, []string{"/policy/max_age"}},
		{"half an attempt", "POST", "/v1/subscribers", `{"policy":{"max_attempts":1.5}}`, ProblemCodeInvalidField, []string{"/policy/max_attempts"}},
		{"2^64 attempts", "POST", "/v1/subscribers", `{"policy":{"max_attempts":18446744073709551616}}`, ProblemCodeInvalidField, []string{"/policy/max_attempts"}},
		{"status as word", "POST", "/v1/subscribers", `{"policy":{"classify":{"teapot":"dead"}}}`, ProblemCodeInvalidField, []string{"/policy/classify/teapot"}},
		{"types as string", "POST", "/v1/subscribers", `{"filter":{"types":"*"}}`, ProblemCodeInvalidField, []string{"/filter/types"}},
		{"type as number", "POST", "/v1/subscribers", `{"filter":{"types":["*",1]}}`, ProblemCodeInvalidField, []string{"/filter/types/1"}},
		{"paused as word", "PATCH", path, `{"paused":"yes"}`, ProblemCodeInvalidField, []string{"/paused"}},
		{"null", "PATCH", path, `{"policy":{"backoff_cap":null}}`, ProblemCodeInvalidField, []string{"/policy/backoff_cap"}},
		{"null data is not special", "PATCH", path, `{"data":null}`, ProblemCodeInvalidField, []string{"/data"}},
		{"another account", "PATCH", path, `{"account":"other"}`, ProblemCodeInvalidRequest, []string{"/account"}},
		{"secret", "PATCH", path, `{"secret":"whsec_x"}`, ProblemCodeInvalidRequest, []string{"/secret"}},
		{"empty patch body", "PATCH", path, ``, ProblemCodeInvalidJSON, nil},
		{"limit 0", "GET", "/v1/subscribers?limit=0", "", ProblemCodeInvalidParameter, []string{"?limit"}},
		{"limit 201", "GET", "/v1/subscribers?limit=201", "", ProblemCodeInvalidParameter, []string{"?limit"}},
		{"limit words", "GET", "/v1/subscribers?limit=ten", "", ProblemCodeInvalidParameter, []string{"?limit"}},
		{"limit twice", "GET", "/v1/subscribers?limit=1&limit=2", "", ProblemCodeInvalidParameter, []string{"?limit"}},
		{"empty cursor", "GET", "/v1/subscribers?cursor=", "", ProblemCodeInvalidCursor, []string{"?cursor"}},
		{"cursor", "GET", "/v1/subscribers?cursor=abc", "", ProblemCodeInvalidCursor, []string{"?cursor"}},
		{"raw id as cursor", "GET", "/v1/subscribers?cursor=" + sub.ID, "", ProblemCodeInvalidCursor, []string{"?cursor"}},
		{"wait", "DELETE", path + "?wait=2", "", ProblemCodeInvalidParameter, []string{"?wait"}},
		{"wait words", "DELETE", path + "?wait=no", "", ProblemCodeInvalidParameter, []string{"?wait"}},
		{"get", "GET", "/v1/subscribers/sub_none", "", ProblemCodeNotFound, nil},
		{"get odd", "GET", "/v1/subscribers/a%2Fb", "", ProblemCodeNotFound, nil},
		{"pause", "POST", "/v1/subscribers/sub_none/pause", "", ProblemCodeNotFound, nil},
		{"resume", "POST", "/v1/subscribers/sub_none/resume", "", ProblemCodeNotFound, nil},
		{"delete", "DELETE", "/v1/subscribers/sub_none", "", ProblemCodeNotFound, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			p := wantProblem(t, r.do(c.method, c.path, c.body, "Content-Type: application/json"), c.code)
			if c.pointers != nil {
				wantFirst(t, p, c.pointers...)
			}
		})
	}
}

func TestListSubscribers(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	if got := into[SubscriberList](t, r.do("GET", "/v1/subscribers", ""), 200); len(got.Data) != 0 || got.NextCursor != nil {
		t.Errorf("an empty list is %+v", got)
	}
	want := map[string]bool{}
	for range 7 {
		want[r.create(minimal).ID] = true
	}
	for _, limit := range []int{1, 3, 7, 200} {
		seen, path, pages := map[string]bool{}, fmt.Sprintf("/v1/subscribers?limit=%d", limit), 0
		for next := ""; ; pages++ {
			got := into[SubscriberList](t, r.do("GET", path+next, ""), 200)
			if len(got.Data) == 0 || len(got.Data) > limit {
				t.Fatalf("limit %d: a page of %d", limit, len(got.Data))
			}
			for _, s := range got.Data {
				if seen[s.ID] || !want[s.ID] {
					t.Errorf("limit %d: %s twice, or from nowhere", limit, s.ID)
				}
				seen[s.ID] = true
			}
			if got.NextCursor == nil {
				break
			}
			next = "&cursor=" + *got.NextCursor
		}
		if len(seen) != len(want) || pages != (len(want)-1)/limit {
			t.Errorf("limit %d: %d subscribers, %d further pages", limit, len(seen), pages)
		}
	}
}

func TestPauseAndResume(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	path := "/v1/subscribers/" + r.create(minimal).ID
	for i, step := range []struct {
		verb    string
		paused  bool
		version int64
	}{{"pause", true, 2}, {"pause", true, 2}, {"resume", false, 3}, {"resume", false, 4}} {
		got := into[Subscriber](t, r.do("POST", path+"/"+step.verb, ""), 200)
		if got.Paused != step.paused || got.Version != step.version {
			t.Errorf("step %d: %s: paused %v at version %d", i, step.verb, got.Paused, got.Version)
		}
	}
}

func TestDeleteSubscriber(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	looks := make(chan struct{}, 64) // one per look at what is left
	r.memory.Before = func(_ context.Context, op string) error {
		if strings.Contains(strings.ToLower(op), "cancel") {
			select {
			case looks <- struct{}{}:
			default:
			}
		}
		return nil
	}
	sub := r.create(minimal)
	path := "/v1/subscribers/" + sub.ID
	r.memory.Enqueue(sub.ID, 3)
	end := r.memory.Lease(sub.ID)

	got := into[SubscriberDeleted](t, r.do("DELETE", path+"?wait=0", ""), http.StatusAccepted)
	if got.Leases != 1 || got.Remaining != 0 {
		t.Errorf("without waiting: %+v", got)
	}
	wantProblem(t, r.do("GET", path, ""), ProblemCodeNotFound)

	type result struct {
		answer
		err error
	}
	answered := make(chan result, 1)
	go func() {
		a, err := r.send("DELETE", path, "")
		answered <- result{a, err}
	}()
	for range 4 { // the first look was that of wait=0; the others end in waiting
		<-looks
	}
	select {
	case a := <-answered:
		t.Errorf("answered while a lease ran: %d %s", a.status, a.body)
	default:
	}
	end()
	a := <-answered
	if a.err != nil {
		t.Fatal(a.err)
	}
	if got := into[SubscriberDeleted](t, a.answer, http.StatusOK); got.Leases != 0 || got.ID != sub.ID {
		t.Errorf("after the lease: %+v", got)
	}
}

// stuck is a store whose last lease never ends.
type stuck struct{ Subscribers }

func (stuck) Get(_ context.Context, id string) (subscriber.Subscriber, error) {
	return subscriber.Subscriber{ID: id, Version: 1}, nil
}

func (stuck) Delete(ctx context.Context, _ string, _ bool) (subscriber.DeleteResult, error) {
	<-ctx.Done()
	return subscriber.DeleteResult{Cancelled: 41, Leases: 1}, fmt.Errorf("delete: waiting for 1 leases: %w", ctx.Err())
}

// A delete that has waited as long as it may is not a failure.
func TestDeleteOutlastsItsRequest(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newPipe(t)
		w.serve(New(Deps{Subscribers: stuck{}, Logger: slog.New(slog.DiscardHandler)}))
		start := time.Now()
		a := w.do("DELETE", "/v1/subscribers/sub_1")
		if a.status != http.StatusAccepted || !strings.Contains(a.body, `"cancelled":41`) || !strings.Contains(a.body, `"leases":1`) {
			t.Errorf("got %d %s", a.status, a.body)
		}
		if took := time.Since(start); took != deleteTimeout {
			t.Errorf("it waited %s, want %s", took, deleteTimeout)
		}
	})
}

func TestSubscribersAway(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	path := "/v1/subscribers/" + r.create(minimal).ID
	failWith := schedule.ErrUnavailable
	r.memory.Before = func(context.Context, string) error { return failWith }
	for _, c := range [][3]string{
		{"POST", "/v1/subscribers", minimal},
		{"GET", "/v1/subscribers", ""},
		{"GET", path, ""},
		{"PATCH", path, `{"name":"x"}`},
		{"POST", path + "/pause", ""},
		{"POST", path + "/resume", ""},
		{"DELETE", path, ""},
	} {
		a := r.do(c[0], c[1], c[2])
		wantProblem(t, a, ProblemCodeUnavailable)
		if a.header.Get("Retry-After") != "2" {
			t.Errorf("%s %s: Retry-After %q", c[0], c[1], a.header.Get("Retry-After"))
		}
	}
	failWith = schedule.ErrFull
	wantProblem(t, r.do("POST", "/v1/subscribers", minimal), ProblemCodeStorageFull)
	failWith = schedule.ErrVersion
	wantProblem(t, r.do("PATCH", path, `{"name":"y"}`), ProblemCodeVersionConflict)
}

// What to do after no answer from Redis depends on what was asked: some requests
// must not be sent again blindly, and a refusal is not a doubt.
func TestAdviceByRoute(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	path := "/v1/subscribers/" + r.create(minimal).ID
	named := `{"id":"evt_1",` + post(`1`)[1:]
	for _, c := range []struct{ method, path, body, header, away, refused string }{
		{"POST", "/v1/subscribers", minimal, "", "List the account's subscribers", "Nothing was stored."},
		{"POST", "/v1/events", named, "", "Send the same one again with the same id", "Nothing was stored."},
		{"POST", "/v1/events", post(`1`), "", "it may be a second event", "Nothing was stored."},
		{"PATCH", path, `{"name":"x"}`, "", "It is safe to send the same one again.", "Nothing was stored."},
		{"PATCH", path, `{"name":"x"}`, `If-Match: "1"`, "a 412 then says", "Nothing was stored."},
		{"POST", path + "/pause", "", "", "It is safe to send the same one again.", "Nothing was stored."},
		{"POST", path + "/resume", "", "", "It is safe to send the same one again.", "Nothing was stored."},
		{"DELETE", path, "", "", "It is safe to send the same one again.", "The delete may have begun"},
		{"GET", path, "", "", "Ask again; nothing was to be changed.", "Nothing was stored."},
		{"GET", "/v1/deliveries/dlv_3f9a7k2m4n6p8q0r1s3t5v70", "", "", "Ask again", "Nothing was stored."},
	} {
		for want, err := range map[string]error{
			c.away:    fmt.Errorf("op: %w", schedule.ErrUnavailable),
			c.refused: fmt.Errorf("op: %w: %w: READONLY", schedule.ErrUnavailable, schedule.ErrRefused),
		} {
			r.memory.Before = func(_ context.Context, op string) error {
				if c.method == "DELETE" && op == "config" { // what it reads first; its own advice is about the write
					return nil
				}
				return err
			}
			r.ingest.do = func(context.Context, ingest.Post) (ingest.Receipt, error) { return ingest.Receipt{}, err }
			r.views.err = err
			p := wantProblem(t, r.do(c.method, c.path, c.body, "Content-Type: application/json", c.header), ProblemCodeUnavailable)
			if !strings.Contains(p.Detail, want) {
				t.Errorf("%s %s %s: %v: %q does not say %q", c.method, c.path, c.header, err, p.Detail, want)
			}
			if c.method == "POST" && c.path == "/v1/subscribers" && strings.Contains(strings.ToLower(p.Detail), "send the same one again") {
				t.Errorf("a create is to be repeated: %q", p.Detail)
			}
		}
	}
}

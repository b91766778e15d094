package e2e

import (
	"fmt"
	"net/http"
	"testing"
	"time"

	standardwebhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"
)

// rotated is the answer to a rotation.
type rotated struct {
	Secret  string
	Secrets []struct {
		ExpiresAt time.Time `json:"expires_at"`
	}
}

func (s *service) rotate(id, overlap string) rotated {
	s.Helper()
	var r rotated
	s.call("POST", "/v1/subscribers/"+id+"/secrets", fmt.Sprintf(`{"overlap":%q}`, overlap), http.StatusCreated, &r)
	return r
}

// fitting says which of the secrets a receiver could have and take a request.
func (r received) fitting(t testing.TB, secrets ...string) (fits []bool) {
	t.Helper()
	for _, secret := range secrets {
		wh, err := standardwebhooks.NewWebhook(secret)
		if err != nil {
			t.Fatal(err)
		}
		fits = append(fits, wh.Verify(r.body, r.header) == nil)
	}
	return fits
}

// While an old secret overlaps a new one, receivers with either take every delivery; a
// second rotation within the first keeps both; when the overlap is over only the newest
// is good.
func TestRotation(t *testing.T) {
	t.Parallel()
	s := start(t)
	e := s.endpoint(always(http.StatusOK))
	sub := s.subscribe(e.URL, "rotation", "")
	s.endpoints = nil // the end of the test would ask for one secret for all
	seen, posts := 0, 0
	deliver := func(n int) []received {
		t.Helper()
		for range n {
			posts++
			s.post(fmt.Sprint("rotation-", posts), "rotation", `{}`)
		}
		s.await(e, n)
		all := e.requests()
		defer func() { seen = len(all) }()
		return all[seen:]
	}
	want := func(when string, log []received, want []bool, secrets ...string) {
		t.Helper()
		for _, r := range log {
			if got := r.fitting(t, secrets...); fmt.Sprint(got) != fmt.Sprint(want) {
				t.Errorf("%s: %v of the secrets fit, want %v", when, got, want)
			}
		}
	}
	old := sub.Secret
	want("before", deliver(3), []bool{true}, old)
	first := s.rotate(sub.ID, "1h")
	want("in the overlap", deliver(5), []bool{true, true}, old, first.Secret)

	const overlap = 4 * time.Second
	second := s.rotate(sub.ID, overlap.String())
	if len(second.Secrets) != 3 || !second.Secrets[0].ExpiresAt.IsZero() || !second.Secrets[1].ExpiresAt.Equal(second.Secrets[2].ExpiresAt) {
		t.Fatalf("after the second rotation: %+v", second.Secrets)
	}
	end := second.Secrets[1].ExpiresAt
	within := 0
	for _, r := range deliver(5) {
		if r.timestamp() < end.Unix() { // a slow machine may come too late
			within++
			want("in both overlaps", []received{r}, []bool{true, true, true}, old, first.Secret, second.Secret)
		}
	}
	if within == 0 {
		t.Errorf("no delivery was within %s: nothing was seen of both overlaps", overlap)
	}
	s.until("the overlap is over", func() bool {
		now, err := s.engine.Now(t.Context())
		s.ok(err)
		return now.After(end)
	})
	want("after the overlap", deliver(5), []bool{false, false, true}, old, first.Secret, second.Secret)
	var shown struct{ Secrets []struct{ ID string } }
	s.call("GET", "/v1/subscribers/"+sub.ID, "", http.StatusOK, &shown)
	if len(shown.Secrets) != 1 {
		t.Errorf("%d secrets are shown after the overlap", len(shown.Secrets))
	}
}

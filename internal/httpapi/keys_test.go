package httpapi

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/fanout/fanout/internal/access"
)

func TestKeys(t *testing.T) {
	t.Parallel()
	k := newKeyed(t)
	soon := time.Now().Add(time.Hour).UTC().Truncate(time.Millisecond)
	a := k.as(access.Admin, "POST", "/v1/keys", `{"name":"Seller 1042","role":"subscriber","account":"acc_1042","rate_per_second":2.5,"expires_at":"`+soon.Format(time.RFC3339Nano)+`"}`)
	made := into[KeyCreated](t, a, http.StatusCreated)
	if !strings.HasPrefix(made.Key, "fok_") || made.Role != RoleSubscriber || made.Account != "acc_1042" || made.RatePerSecond != 2.5 ||
		!made.ExpiresAt.Equal(soon) || made.CreatedBy != k.ids[access.Admin] || a.header.Get("Location") != "/v1/keys/"+made.ID {
		t.Errorf("got %+v", made)
	}
	if me := into[Self](t, k.do("GET", "/v1/keys/self", "", "Authorization: Bearer "+made.Key), 200); me.ID != made.ID || me.Account != "acc_1042" {
		t.Errorf("got %+v", me)
	}
	got := k.do("GET", "/v1/keys/"+made.ID, "")
	if into[Key](t, got, 200).ID != made.ID || strings.Contains(got.body, made.Key) {
		t.Errorf("got %s", got.body)
	}
	var ids []string
	for cursor := ""; ; {
		page := into[KeyList](t, k.do("GET", "/v1/keys?limit=2"+cursor, ""), 200)
		for _, key := range page.Data {
			ids = append(ids, key.ID)
		}
		if page.NextCursor == nil {
			break
		}
		cursor = "&cursor=" + *page.NextCursor
	}
	if len(ids) != 6 {
		t.Errorf("%d keys are listed, want 6", len(ids))
	}
	for range 2 { // again is safe
		if ended := into[Key](t, k.do("DELETE", "/v1/keys/"+made.ID, ""), 200); ended.RevokedAt.IsZero() {
			t.Errorf("got %+v", ended)
		}
	}
	wantProblem(t, k.do("GET", "/v1/keys/self", "", "Authorization: Bearer "+made.Key), ProblemCodeUnauthenticated)
	for _, c := range [][2]string{{"GET", "key_none"}, {"DELETE", "key_none"}, {"GET", "a-b"}, {"DELETE", strings.Repeat("k", 65)}} {
		wantProblem(t, k.do(c[0], "/v1/keys/"+c[1], ""), ProblemCodeNotFound)
	}
	if strings.Contains(k.log.String(), made.Key) {
		t.Error("the log has the token")
	}
}

func TestCreateKeyRefuses(t *testing.T) {
	t.Parallel()
	k := newKeyed(t)
	for _, c := range []struct {
		body     string
		code     ProblemCode
		pointers []string
	}{
		{`{}`, ProblemCodeInvalidRequest, []string{"/name", "/role"}},
		{`{"name":"n","role":"root"}`, ProblemCodeInvalidRequest, []string{"/role"}},
		{`{"name":"n","role":"subscriber"}`, ProblemCodeInvalidRequest, []string{"/account"}},
		{`{"name":"n","role":"viewer","account":"acc_1"}`, ProblemCodeInvalidRequest, []string{"/account"}},
		{`{"name":"n","role":"viewer","expires_at":"2020-01-01T00:00:00Z"}`, ProblemCodeInvalidRequest, []string{"/expires_at"}},
		{`{"name":"n","role":"viewer","rate_per_second":-1}`, ProblemCodeInvalidRequest, []string{"/rate_per_second"}},
		{`{"name":"` + strings.Repeat("n", 101) + `","role":"viewer"}`, ProblemCodeInvalidRequest, []string{"/name"}},
		{`{"name":"n","role":"viewer","expires_at":"tomorrow"}`, ProblemCodeInvalidField, []string{"/expires_at"}},
		{`{"name":"n","role":["viewer"]}`, ProblemCodeInvalidField, []string{"/role"}},
		{`{"name":"n","role":"viewer","scope":"all"}`, ProblemCodeInvalidField, []string{"/scope"}},
		{`{"name":"n","role":"viewer","account":null}`, ProblemCodeInvalidField, []string{"/account"}},
		{`{"name":"n","role":"viewer","rate_per_second":"5"}`, ProblemCodeInvalidField, []string{"/rate_per_second"}},
	} {
		p := wantProblem(t, k.do("POST", "/v1/keys", c.body), c.code)
		wantPointers(t, p, c.pointers...)
	}
	p := wantProblem(t, k.do("POST", "/v1/keys", `{"expires_at":"tomorrow"}`), ProblemCodeInvalidField)
	if !strings.Contains(p.Errors[0].Detail, "RFC 3339") {
		t.Errorf("%q", p.Errors[0].Detail)
	}
}

// A server that was given no keys and no audit has none to show.
func TestWithoutKeys(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	for _, c := range [][3]string{
		{"GET", "/v1/keys", ""},
		{"POST", "/v1/keys", `{"name":"n","role":"viewer"}`},
		{"GET", "/v1/keys/key_1", ""},
		{"DELETE", "/v1/keys/key_1", ""},
		{"GET", "/v1/audit", ""},
	} {
		wantProblem(t, r.do(c[0], c[1], c[2]), ProblemCodeUnavailable)
	}
	r.create(minimal) // and what would be audited works
}

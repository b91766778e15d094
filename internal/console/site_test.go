package console_test

import (
	"io"
	"net/http"
	"net/http/cookiejar"
	"net/url"
	"regexp"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/fanout/fanout/client"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// visitor has no cookies yet, and is not led anywhere by itself.
func (s *stack) visitor() *visitor {
	s.Helper()
	jar, err := cookiejar.New(nil)
	s.ok(err)
	t := &http.Transport{}
	s.Cleanup(t.CloseIdleConnections)
	return &visitor{stack: s, http: &http.Client{
		Transport: t, Jar: jar, Timeout: 20 * time.Second,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}}
}

func (v *visitor) signIn(key string) response {
	v.Helper()
	return v.do("POST", "/oncall/login", url.Values{"key": {key}, "next": {"/oncall"}}.Encode())
}

var tokens = regexp.MustCompile(`name="form_token" value="([0-9a-f]{32})"`)

// press sends a form of a page, as that page has it.
func (v *visitor) press(page, action, text string) response {
	v.Helper()
	shown := v.do("GET", page, "")
	token := tokens.FindStringSubmatch(shown.body)
	if token == nil || !strings.Contains(shown.body, `action="`+page+"/"+action+`"`) {
		v.Fatalf("%s (%d) has no form for %s", page, shown.status, action)
	}
	return v.do("POST", page+"/"+action, url.Values{"form_token": {token[1]}, "text": {text}}.Encode())
}

func TestLogin(t *testing.T) {
	t.Parallel()
	s := small(t)
	operator, id := s.key("night shift", "operator")
	v := s.visitor()

	// Without a session: to the login, and back to where one wanted.
	a := v.do("GET", "/oncall/subscribers/sub_1", "")
	if a.status != http.StatusSeeOther || a.header.Get("Location") != "/oncall/login?next=%2Foncall%2Fsubscribers%2Fsub_1" {
		t.Fatalf("without a session: %d to %q", a.status, a.header.Get("Location"))
	}
	form := v.do("GET", "/oncall/login?next=/oncall/subscribers/sub_1", "")
	if form.status != http.StatusOK || !strings.Contains(form.body, `name="next" value="/oncall/subscribers/sub_1"`) || !strings.Contains(form.body, `type="password"`) {
		t.Errorf("the login: %d %s", form.status, form.body)
	}
	for _, evil := range []string{"https://evil.example/", "//evil.example/oncall", "/v1/keys", "/oncallx", "javascript:alert(1)", "/oncall/logout", "\\\\evil"} {
		if a := v.do("GET", "/oncall/login?next="+url.QueryEscape(evil), ""); !strings.Contains(a.body, `name="next" value="/oncall"`) {
			t.Errorf("the login leads to %s", evil)
		}
	}
	// A link of another site, an alert's, gets one more try with the cookie.
	v.header = http.Header{"Sec-Fetch-Site": {"cross-site"}}
	if a := v.do("GET", "/oncall", ""); a.status != http.StatusOK || !strings.Contains(a.body, `content="0;url=/oncall"`) {
		t.Errorf("from another site: %d %s", a.status, a.body)
	}
	v.header = nil

	for role, want := range map[client.Role]string{"producer": "role producer", "subscriber": "role subscriber"} {
		key, _ := s.key("not for pages", role)
		if a := s.visitor().signIn(key); a.status != http.StatusForbidden || !strings.Contains(a.body, want) || a.header.Get("Set-Cookie") != "" {
			t.Errorf("a %s signing in: %d %q", role, a.status, a.header.Get("Set-Cookie"))
		}
	}
	if a := s.visitor().signIn("fok_guess"); a.status != http.StatusUnauthorized || strings.Contains(a.body, "fok_guess") {
		t.Errorf("a guess: %d", a.status)
	}

	a = v.signIn(operator)
	cookie := a.header.Get("Set-Cookie")
	for _, want := range []string{"HttpOnly", "SameSite=Strict", "Path=/", "Max-Age=28"} {
		if a.status != http.StatusSeeOther || !strings.Contains(cookie, want) {
			t.Errorf("signed in: %d, cookie %q lacks %s", a.status, cookie, want)
		}
	}
	if strings.Contains(cookie, "Secure") {
		t.Error("a cookie by http is Secure: no browser would send it back")
	}
	page := v.do("GET", "/oncall", "")
	if page.status != http.StatusOK || !strings.Contains(page.body, "night shift") || !strings.Contains(page.body, "Sign out") {
		t.Errorf("the page: %d", page.status)
	}
	// The session reads the API, and changes nothing there: that needs a form's token.
	if a := v.do("GET", "/v1/keys/self", ""); a.status != http.StatusOK || !strings.Contains(a.body, id) {
		t.Errorf("the API by session: %d %s", a.status, a.body)
	}
	if a := v.do("POST", "/v1/redrives", "x"); a.status != http.StatusUnauthorized {
		t.Errorf("a change of the API by session: %d", a.status)
	}

	// By TLS in front the cookie is Secure.
	other := s.visitor()
	other.header = http.Header{"X-Forwarded-Proto": {"https"}}
	if a := other.signIn(operator); !strings.Contains(a.header.Get("Set-Cookie"), "Secure") {
		t.Errorf("behind TLS: %q", a.header.Get("Set-Cookie"))
	}

	// Signing out needs the form, and ends it at once, everywhere.
	if a := v.do("POST", "/oncall/logout", "form_token=0"); a.status != http.StatusForbidden {
		t.Errorf("signed out by a stranger's form: %d", a.status)
	}
	stolen, _, _ := strings.Cut(cookie, ";")
	token := tokens.FindStringSubmatch(page.body)
	if a := v.do("POST", "/oncall/logout", "form_token="+token[1]); a.status != http.StatusSeeOther || !strings.Contains(a.header.Get("Set-Cookie"), "Max-Age=0") {
		t.Errorf("signed out: %d %q", a.status, a.header.Get("Set-Cookie"))
	}
	thief := s.visitor()
	thief.header = http.Header{"Cookie": {stolen}}
	if a := thief.do("GET", "/oncall", ""); a.status != http.StatusSeeOther {
		t.Errorf("the session after its end: %d", a.status)
	}
	if a := thief.do("GET", "/v1/oncall", ""); a.status != http.StatusUnauthorized || strings.Contains(strings.Join(a.header.Values("WWW-Authenticate"), " "), "Basic") {
		t.Errorf("a browser with an old session is asked for a password: %q", a.header.Values("WWW-Authenticate"))
	}

	// A key that is revoked takes its sessions along.
	if _, err := s.admin.RevokeKey(t.Context(), id); err != nil {
		t.Fatal(err)
	}
	if a := other.do("GET", "/oncall", ""); a.status != http.StatusSeeOther {
		t.Errorf("the session of a revoked key: %d", a.status)
	}
	for what, secret := range map[string]string{"key": operator, "session": strings.TrimPrefix(stolen, "fanout_session=")} {
		if strings.Contains(s.logged(), secret) || strings.Contains(page.body, secret) {
			t.Errorf("log or page shows the %s", what)
		}
	}
}

// Who guesses is slowed down, whatever he guesses.
func TestLoginIsLimited(t *testing.T) {
	t.Parallel()
	s := small(t)
	v := s.visitor()
	for range 10 {
		if a := v.signIn("fok_guess"); a.status != http.StatusUnauthorized {
			t.Fatalf("a guess: %d", a.status)
		}
	}
	a := v.signIn(adminKey)
	if a.status != http.StatusTooManyRequests || a.header.Get("Retry-After") == "" || a.header.Get("Set-Cookie") != "" {
		t.Errorf("the eleventh: %d, Retry-After %q", a.status, a.header.Get("Retry-After"))
	}
}

// What a page shows, and what its buttons do: by role, by form, and in the audit.
func TestPagesAndButtons(t *testing.T) {
	t.Parallel()
	s := small(t)
	s.hooks.answer("/label-printer", http.StatusUnprocessableEntity)
	sub := s.register("label-printer", "standard", "shipment.*")
	events := s.post(3, "shipment.label_printed")
	dead := s.dead(sub.ID, 3)
	id := dead[0].Delivery.ID

	operator, keyID := s.key("night shift", "operator")
	viewer, _ := s.key("day shift", "viewer")
	op, look := s.visitor(), s.visitor()
	op.signIn(operator)
	look.signIn(viewer)

	for path, wants := range map[string][]string{
		"/oncall/subscribers/" + sub.ID: {"label-printer", "at most 5", id, "Newest dead letters"},
		"/oncall/deliveries/" + id:      {id, events[0][:4], "Its way", `role="img"`, "http_422", "/oncall/dead-letters/" + id},
		"/oncall/dead-letters/" + id: {
			"&lt;script&gt;alert(1)&lt;/script&gt;", "is final by the policy", "no label was ordered", "shp_", "carrier", "&#34;weight_g&#34;:1200",
		},
		"/oncall/events/" + events[0]: {"shipment.label_printed", "1 subscriber", sub.ID},
	} {
		for _, who := range []*visitor{op, look} {
			a := who.do("GET", path, "")
			if a.status != http.StatusOK || !strings.Contains(a.header.Get("Content-Security-Policy"), "form-action 'self'") {
				t.Errorf("%s: %d", path, a.status)
			}
			for _, want := range wants {
				if !strings.Contains(a.body, want) {
					t.Errorf("%s lacks %q", path, want)
				}
			}
			for _, never := range []string{"<script>alert", "<img", "\u202E", "ZgotmplZ", "<no value>", " style=", " onerror=\""} {
				if strings.Contains(a.body, never) {
					t.Errorf("%s has %q", path, never)
				}
			}
		}
		if strings.Contains(look.do("GET", path, "").body, `class="offer"`) {
			t.Errorf("%s offers a viewer what he may not do", path)
		}
	}
	for _, path := range []string{"/oncall/deliveries/dlv_none", "/oncall/nothing/1", "/oncall/redrives/rdv_none", "/oncall/events/none", "/oncall/subscribers/sub_none"} {
		if a := op.do("GET", path, ""); a.status != http.StatusNotFound || !strings.Contains(a.body, "Not found") {
			t.Errorf("%s: %d", path, a.status)
		}
	}
	for given, want := range map[string]string{id: "deliveries/" + id, sub.ID: "subscribers/" + sub.ID, "evt 1": "events/evt%201", "rdv_1": "redrives/rdv_1"} {
		if a := op.do("GET", "/oncall/find?id="+url.QueryEscape(given), ""); a.header.Get("Location") != "/oncall/"+want {
			t.Errorf("find %s: to %q", given, a.header.Get("Location"))
		}
	}

	// Buttons: not without the token of this session, not from another site, not for a
	// viewer, not without a reason.
	page := "/oncall/subscribers/" + sub.ID
	for name, form := range map[string]string{"no token": "text=x", "a wrong token": "text=x&form_token=" + strings.Repeat("0", 32)} {
		if a := op.do("POST", page+"/pause", form); a.status != http.StatusForbidden || !strings.Contains(a.body, "Nothing was done") {
			t.Errorf("%s: %d", name, a.status)
		}
	}
	token := tokens.FindStringSubmatch(op.do("GET", page, "").body)[1]
	op.header = http.Header{"Origin": {"https://evil.example"}}
	if a := op.do("POST", page+"/pause", "text=x&form_token="+token); a.status != http.StatusForbidden {
		t.Errorf("from another site: %d", a.status)
	}
	op.header = nil
	if a := look.do("POST", page+"/pause", "text=x&form_token="+token); a.status != http.StatusForbidden {
		t.Errorf("with another's token: %d", a.status)
	}
	lookToken := tokens.FindStringSubmatch(look.do("GET", page, "").body)[1]
	if a := look.do("POST", page+"/pause", "text=x&form_token="+lookToken); a.status != http.StatusForbidden || !strings.Contains(a.body, "role viewer") {
		t.Errorf("a viewer pauses: %d", a.status)
	}
	if a := op.press(page, "pause", " "); a.status != http.StatusUnprocessableEntity || !strings.Contains(a.body, "is required") {
		t.Errorf("without a reason: %d", a.status)
	}
	if sub, err := s.admin.GetSubscriber(t.Context(), sub.ID); err != nil || sub.Paused {
		t.Fatalf("it was paused all the same: %v", err)
	}
	if a := op.press(page, "pause", "its database moves"); a.header.Get("Location") != page+"?done=pause" {
		t.Errorf("paused: %d %s", a.status, a.body)
	}
	if a := op.do("GET", page+"?done=pause", ""); !strings.Contains(a.body, "On hold: paused") || !strings.Contains(a.body, "Paused: nothing is sent") {
		t.Error("the page does not say that it was paused")
	}
	if a := op.press(page, "resume", ""); a.status != http.StatusSeeOther {
		t.Errorf("resumed: %d", a.status)
	}

	// A dead letter, redriven from its page: the canary, then the approval.
	s.hooks.answer("/label-printer", http.StatusOK)
	a := op.press("/oncall/dead-letters/"+id, "redrive", "the label service is back")
	redrive := a.header.Get("Location")
	if a.status != http.StatusSeeOther || !strings.HasPrefix(redrive, "/oncall/redrives/rdv_") {
		t.Fatalf("redriven: %d to %q", a.status, redrive)
	}
	s.until("the canary's end", func() bool {
		a := op.do("GET", redrive, "")
		return strings.Contains(a.body, "Waits for approval") || strings.Contains(a.body, ">Done<")
	})
	if a := op.press("/oncall/dead-letters/"+dead[1].Delivery.ID, "discard", "never wanted"); a.header.Get("Location") != "/oncall" {
		t.Errorf("discarded: %d %s", a.status, a.body)
	}
	log, err := s.admin.ListAudit(t.Context(), client.AuditFilter{KeyID: keyID}, client.Page{Limit: 50})
	if err != nil {
		t.Fatal(err)
	}
	var did []string
	for _, e := range log.Data {
		did = append(did, e.Action+" "+e.Target+" "+e.Reason)
	}
	for _, want := range []string{"pauseSubscriber " + sub.ID + " its database moves", "resumeSubscriber " + sub.ID, "createRedrive ", "the label service is back", "discardDeadLetters"} {
		if !strings.Contains(strings.Join(did, "\n"), want) {
			t.Errorf("the audit of %s lacks %q:\n%s", keyID, want, strings.Join(did, "\n"))
		}
	}
}

// Who watches the stream of the page is cut off when his key is revoked.
func TestStreamEndsWithItsKey(t *testing.T) {
	t.Parallel()
	s := small(t)
	viewer, id := s.key("day shift", "viewer")
	v := s.visitor()
	v.signIn(viewer)
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, s.url+"/oncall/events", http.NoBody)
	s.ok(err)
	resp, err := v.http.Do(req)
	s.ok(err)
	defer func() { _ = resp.Body.Close() }()
	if resp.StatusCode != http.StatusOK {
		t.Fatalf("the stream is %s", resp.Status)
	}
	stream := make(chan error, 1)
	go func() {
		_, err := io.Copy(io.Discard, resp.Body)
		stream <- err
	}()
	_, err = s.admin.RevokeKey(t.Context(), id)
	s.ok(err)
	select {
	case err := <-stream:
		if err != nil {
			t.Errorf("it did not end cleanly: %v", err)
		}
	case <-time.After(10 * time.Second):
		t.Error("the stream goes on")
	}
}

package e2e

import (
	"encoding/base64"
	"fmt"
	"maps"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/prometheus/common/expfmt"
)

// What must not show, in texts of whose parts it is easy to see where they were
// found: a token in a URL's query, and a secret that was given.
const (
	token    = "t0ken-in-a-query"
	givenKey = "U2VjcmV0U2VjcmV0U2VjcmV0U2VjcmV0" // of 24 bytes
	given    = "whsec_" + givenKey
)

// places are all the texts that the service gives of itself, by where.
func (s *service) places(reply func(method, path, body string) string) map[string]string {
	s.Helper()
	all := map[string]string{"the log": s.logs.String()}
	var b strings.Builder
	s.mu.Lock()
	for _, reg := range s.registries {
		families, err := reg.Gather()
		s.ok(err)
		for _, f := range families {
			_, err := expfmt.MetricFamilyToText(&b, f)
			s.ok(err)
		}
	}
	s.mu.Unlock()
	all["the metrics"] = b.String()
	for _, path := range []string{"/metrics", "/v1/oncall", "/oncall", "/v1/dead-letters?limit=200", "/readyz"} {
		all["GET "+path] = reply("GET", path, "")
	}
	// Refusals must not quote what they refuse.
	for name, body := range map[string]string{
		"a blocked URL":  fmt.Sprintf(`{"url":"http://10.0.0.1/?token=%s","secret":%q}`, token, given),
		"a bad scheme":   fmt.Sprintf(`{"url":"ftp://example.com/?token=%s"}`, token),
		"credentials":    fmt.Sprintf(`{"url":"https://me:%s@example.com/"}`, token),
		"no URL at all":  fmt.Sprintf(`{"url":"https://exa mple.com/?token=%s"}`, token),
		"a short secret": fmt.Sprintf(`{"url":"https://example.com/","secret":%q}`, given[:20]+"=="),
		"a long secret":  fmt.Sprintf(`{"url":"https://example.com/","secret":"%s%s"}`, given, strings.Repeat(givenKey, 4)),
		"broken JSON":    fmt.Sprintf(`{"url":"https://example.com/?token=%s","secret":%q,}`, token, given),
		"a wrong type":   fmt.Sprintf(`{"url":["https://example.com/?token=%s"],"secret":[%q]}`, token, given),
	} {
		all["the refusal of "+name] = reply("POST", "/v1/subscribers", body)
	}
	return all
}

// Secrets show nowhere but in the reply to whoever registered them, and the tokens in
// URLs nowhere at all: whatever goes wrong, and even if an endpoint throws them back.
func TestSecretsStaySecret(t *testing.T) {
	t.Parallel()
	s := start(t)
	// An endpoint that knows its secret and shows all it knows.
	tell := func(status int, secret func() string) answer {
		return func(_ int, w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Location", "http://127.0.0.1/?token="+token)
			w.WriteHeader(status)
			_, key, _ := strings.Cut(secret(), "_")
			_, _ = fmt.Fprintf(w, "%s with %s, or %s, and %s", r.URL, secret(), key, token)
		}
	}
	var made atomic.Value // the secret that is not given
	echo := s.endpoint(tell(http.StatusInternalServerError, func() string { return given }))
	makes := s.endpoint(tell(http.StatusNotFound, func() string { return made.Load().(string) }))
	moved := s.endpoint(tell(http.StatusFound, func() string { return given }))
	well := s.endpoint(tell(http.StatusOK, func() string { return given }))
	selfSigned, _ := s.endpointTLS(pair(issue(nil, nil, nil)), always(http.StatusOK))
	refused, _ := refusing(t)
	reply := func(method, path, body string) string {
		_, b := s.do(method, path, body)
		return string(b)
	}

	others := map[string]string{}
	secrets := []string{given, givenKey}
	for name, c := range map[string]struct{ url, policy, reason string }{
		"echoes":         {echo.URL, quick, "exhausted"},
		"redirects":      {moved.URL, quick, "http_3xx"},
		"hangs":          {s.endpoint(hang).URL, hasty, "exhausted"},
		"resets":         {s.endpoint(reset).URL, quick, "exhausted"},
		"is-self-signed": {selfSigned.URL, quick, "exhausted"},
		"speaks-no-tls":  {strings.Replace(echo.URL, "http:", "https:", 1), quick, "exhausted"},
		"refuses":        {"http://" + refused, quick, "exhausted"},
		"has-no-address": {"http://nowhere.onion", quick, "exhausted"}, // never asked of a DNS server (RFC 7686)
		"is-well":        {well.URL, quick, ""},
		"was-made-one":   {makes.URL, quick, "http_404"},
	} {
		secret := fmt.Sprintf(`,"secret":%q`, given)
		if name == "was-made-one" {
			secret = ""
		}
		sub := s.register(fmt.Sprintf(`{"url":"%s/hook?token=%s&x=1","filter":{"types":[%q]},"policy":%s%s}`,
			c.url, token, name, c.policy, secret))
		if secret == "" {
			made.Store(sub.Secret)
			secrets = append(secrets, sub.Secret, strings.TrimPrefix(sub.Secret, "whsec_"))
		}
		s.post(name, name, `{}`)
		var v view
		if c.reason == "" {
			v = s.delivery(name, "delivered")
		} else {
			v = s.dead(name, c.reason)
		}
		path := "/v1/subscribers/" + sub.ID
		others["the event of one that "+name] = reply("GET", "/v1/events/"+name, "")
		others["the delivery of one that "+name] = reply("GET", "/v1/deliveries/"+v.ID, "")
		others["one that "+name] = reply("GET", path, "")
		others["a patch of one that "+name] = reply("PATCH", path, `{"name":"renamed"}`)
		others["a pause of one that "+name] = reply("POST", path+"/pause", "")
		others["a patch of the secret of one that "+name] = reply("PATCH", path, fmt.Sprintf(`{"secret":%q}`, given))
	}
	others["the list of subscribers"] = reply("GET", "/v1/subscribers?limit=200", "")
	maps.Copy(others, s.places(reply))

	hidden := func(where, text string, words ...string) {
		for _, w := range words {
			if i := strings.Index(text, w); i >= 0 {
				t.Errorf("%s shows %s: ...%s...", where, w, text[max(0, i-200):min(len(text), i+len(w)+50)])
			}
		}
	}
	raw, err := base64.StdEncoding.DecodeString(givenKey)
	s.ok(err)
	secrets = append(secrets, string(raw))
	for where, text := range others {
		if text == "" {
			t.Errorf("%s is empty", where)
		}
		hidden(where, text, append(secrets, token)...)
	}
	if !strings.Contains(others["the delivery of one that echoes"], "[redacted]") {
		t.Error("the evidence does not show that something was taken out")
	}
}

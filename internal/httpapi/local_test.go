package httpapi

import (
	"net/http"
	"testing"
)

func TestLoopbackHost(t *testing.T) {
	t.Parallel()
	for host, want := range map[string]bool{
		"localhost": true, "localhost:8080": true, "LocalHost:80": true, "127.0.0.1": true, "127.0.0.1:8080": true,
		"127.9.8.7:1": true, "[::1]": true, "[::1]:8080": true, "[::ffff:127.0.0.1]:80": true,
		"": false, "evil.example": false, "evil.example:8080": false, "localhost.evil.example": false, "127.0.0.1.nip.io": false,
		"a.localhost": false, "10.0.0.1": false, "0.0.0.0": false, "[::]:8080": false, "169.254.169.254:80": false, "8.8.8.8:53": false,
		"[::1": false, "[localhost]": false, "[::1]evil": false, "[127.0.0.1": false, "2130706433": false, "127.1": false, "0x7f.1": false, "localhost@evil": false, "evil:localhost": false,
	} {
		if got := loopbackHost(host); got != want {
			t.Errorf("%q: %v, want %v", host, got, want)
		}
	}
}

// A name that somebody has pointed at this machine is served nothing, on any path.
func TestOtherHostsAreRefused(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	path := "/v1/subscribers/" + r.create(minimal).ID
	for _, c := range [][2]string{
		{"GET", "/"},
		{"GET", "/v1/subscribers"},
		{"GET", "/healthz"},
		{"GET", "/metrics"},
		{"GET", "/openapi.yaml"},
		{"GET", "/oncall"},
		{"POST", path + "/pause"},
		{"DELETE", path},
		{"GET", "/nowhere"},
		{"BREW", "/v1/events"},
	} {
		wantProblem(t, r.do(c[0], c[1], "", "Host: rebind.example:8080"), ProblemCodeHostNotAllowed)
	}
	if got := into[Subscriber](t, r.do("GET", path, "", "Host: localhost"), 200); got.Paused {
		t.Error("refused, and paused all the same")
	}
}

// A page of another site changes nothing, body or not.
func TestOtherSitesAreRefused(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	path := "/v1/subscribers/" + r.create(minimal).ID
	for _, header := range []string{
		"Sec-Fetch-Site: cross-site", "Sec-Fetch-Site: same-site", "Origin: https://evil.example", "Origin: null", "Origin: http://127.0.0.1:1",
	} {
		for _, c := range [][3]string{
			{"POST", path + "/pause", ""},
			{"POST", path + "/resume", ""},
			{"DELETE", path, ""},
			{"PATCH", path, `{"paused":true}`},
			{"POST", "/v1/subscribers", minimal},
			{"POST", "/v1/events", post(`1`)},
			{"PUT", "/nowhere", ""},
		} {
			wantProblem(t, r.do(c[0], c[1], c[2], header), ProblemCodeCrossOriginRefused)
		}
	}
	if got := into[Subscriber](t, r.do("GET", path, "", "Sec-Fetch-Site: cross-site"), 200); got.Paused || got.Version != 1 {
		t.Errorf("refused, and changed all the same: %+v", got)
	}
	for _, header := range []string{"Sec-Fetch-Site: same-origin", "Sec-Fetch-Site: none", "Origin: " + r.url} {
		if a := r.do("POST", path+"/pause", "", header); a.status != http.StatusOK {
			t.Errorf("%s: %d %s", header, a.status, a.body)
		}
	}
}

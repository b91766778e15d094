package cli

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"

	"github.com/fanout/fanout/client"
)

// aLook is what the server's own tests hold GET /v1/oncall against: a service in trouble.
func aLook(t *testing.T) (client.OnCall, []byte) {
	t.Helper()
	b, err := os.ReadFile("../oncall/testdata/oncall.json")
	if err != nil {
		t.Fatal(err)
	}
	var o client.OnCall
	if err := json.Unmarshal(b, &o); err != nil {
		t.Fatal(err)
	}
	return o, b
}

func TestTriageText(t *testing.T) {
	t.Parallel()
	o, _ := aLook(t)
	golden(t, "triage.txt", strings.Join(triageLines(o), "\n")+"\n")
	tb := &table{}
	statusTable(tb, o)
	golden(t, "status.table", tb.String())
}

// A page is exit code 3, as a service that does not answer is; what wakes nobody is 0.
func TestTriageExitCode(t *testing.T) {
	t.Parallel()
	o, _ := aLook(t)
	for _, page := range []bool{true, false} {
		o.Triage.Page = page
		b, err := json.Marshal(o)
		if err != nil {
			t.Fatal(err)
		}
		srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			_, _ = w.Write(b)
		}))
		t.Cleanup(srv.Close)
		want := exitOK
		if page {
			want = exitUnavailable
		}
		for _, args := range [][]string{{"triage"}, {"status"}, {"triage", "-o", "json"}, {"status", "-o", "json"}} {
			r := run(t, "", append(args, "--api="+srv.URL)...)
			if r.code != want || r.out == "" || r.err != "" {
				t.Errorf("%v of a page %v: exit code %d, %q", args, page, r.code, r.err)
			}
			if args[len(args)-1] == "json" && !json.Valid([]byte(r.out)) {
				t.Errorf("%v: no JSON: %s", args, r.out)
			}
		}
	}
}

// What a person sees of a service that runs.
func TestTriageOfAService(t *testing.T) {
	t.Parallel()
	s := newService(t)
	var r result
	until(t, "a dispatcher has reported", func() bool {
		r = run(t, "", s.args("status")...)
		return strings.Contains(r.out, "0 of 20 in use")
	})
	if r.code != exitOK || !strings.Contains(r.out, "healthy") || !strings.Contains(r.out, "class standard") {
		t.Errorf("status: %+v", r)
	}
	if r = s.ok("triage"); !strings.HasPrefix(r.out, "healthy (nobody needs to act now)") || strings.Count(r.out, "\nNO      ") != 4 {
		t.Errorf("triage: %s%s", r.out, r.err)
	}
}

package cli

import (
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/fanout/fanout/client"
)

// A 0 or a number that cannot be meant never comes to mean the default, and never gets
// as far as the API.
func TestOrderWithinBounds(t *testing.T) {
	t.Parallel()
	for flag, says := range map[string]string{
		"--budget=0": "--budget must be from 1 to 10 attempts, is 0", "--budget=1000": "is 1000", "--budget=-1": "is -1",
		"--canaries=0": "--canaries must be from 1 to 10, is 0", "--canaries=11": "is 11",
		"--max-rate=NaN": "--max-rate must be from 0.01 to 1000 a second, is NaN", "--max-rate=+Inf": "is +Inf", "--max-rate=-Inf": "is -Inf",
		"--max-rate=0": "is 0; left out, it is half of the head-room", "--max-rate=1001": "is 1001", "--max-rate=-1": "is -1",
		"--within=0s": "--within must be from 1m to 720h, is 0s", "--within=721h": "is 721h",
	} {
		for _, command := range []string{"plan", "start"} {
			r := run(t, "", "redrive", command, "--all", "--reason=a test", flag, "--api=http://127.0.0.1:1")
			if r.code != exitUsage || !strings.Contains(r.err, says) {
				t.Errorf("%s %s: %+v, want %q", command, flag, r, says)
			}
		}
	}
	for _, flags := range []string{"--budget=10 --canaries=10 --max-rate=1000 --within=720h", "--budget=1 --canaries=1 --max-rate=0.01 --within=1m", ""} {
		api := knowing(t, http.StatusNotFound, map[string]any{"POST /v1/redrives": aPreview()})
		if r := run(t, "", append(strings.Fields("redrive plan --all "+flags), "--api="+api)...); r.code != exitOK {
			t.Errorf("%q: %+v", flags, r)
		}
	}
}

// Nothing that matches is no good news if it is for a name that was mistyped.
func TestNothingMatches(t *testing.T) {
	t.Parallel()
	api := knowing(t, http.StatusNotFound, map[string]any{
		"POST /v1/redrives": client.RedrivePreview{Warnings: []string{"No dead letter matches."}}, "GET /v1/dead-letters": client.List[client.DeadLetter]{},
		"GET /v1/oncall":            client.OnCall{Classes: []client.OnCallClass{{Class: "standard", Configured: true}, {Class: "bulk", Configured: true}, {Class: "left"}}},
		"GET /v1/subscribers/sub_1": aSubscriber(),
	})
	for _, command := range []string{"redrive plan", "dead ls", "redrive plan -o json", "dead ls -o json"} {
		for flags, want := range map[string][]string{
			"--class=nope":                      {"No dead letter matches: class nope.", `no class that is configured has the name "nope"; there are bulk, standard`},
			"--class=standard":                  {"No dead letter matches: class standard."},
			"--type=t.*":                        {"No dead letter matches: type t.*.", `--type is one type to the letter, and "t.*" is a pattern`},
			"--subscriber=sub_1":                {"No dead letter matches: subscriber sub_1."},
			"--subscriber=sub_2 --died-of=gone": {"No dead letter matches: subscriber sub_2, died of gone.", "there is no subscriber sub_2"},
		} {
			r := run(t, "", append(strings.Fields(command+" "+flags), "--api="+api)...)
			if r.code != exitOK || strings.Count(r.err, "\n") != len(want) {
				t.Errorf("%s %s: exit code %d\n%s", command, flags, r.code, r.err)
			}
			for _, w := range want {
				if !strings.Contains(r.err, w) {
					t.Errorf("%s %s: it does not say %q:\n%s", command, flags, w, r.err)
				}
			}
		}
	}
}

// What was named and is not discarded is a failure, and says who has it.
func TestDiscardThatLeavesSome(t *testing.T) {
	t.Parallel()
	answers := map[string]any{"GET /v1/dead-letters/dlv_2": client.DeadLetterEvidence{RedriveID: "rdv_1"}}
	for _, c := range []struct {
		all  client.Discarded
		code int
		out  string
		err  string
	}{
		{client.Discarded{Discarded: 1, Results: []client.DiscardResult{{ID: "dlv_1", Result: "discarded"}}}, exitOK, "discarded", ""},
		{client.Discarded{Discarded: 1, Results: []client.DiscardResult{{ID: "dlv_1", Result: "discarded"}, {ID: "dlv_2", Result: "in_redrive"}}}, exitFailed, "left: redrive rdv_1 has it", "1 of 2 were not discarded"},
		{client.Discarded{Results: []client.DiscardResult{{ID: "dlv_3", Result: "in_redrive"}}}, exitFailed, "left: a redrive has it", "1 of 1 was not discarded"},
		{client.Discarded{Results: []client.DiscardResult{{ID: "dlv_3", Result: "missing"}}}, exitFailed, "is not there", "1 of 1 was not discarded"},
	} {
		answers["POST /v1/dead-letters/discard"] = c.all
		api := knowing(t, http.StatusNotFound, answers)
		r := run(t, "", "dead", "discard", "dlv_1", "dlv_2", "--reason=a test", "--api="+api)
		if r.code != c.code || !strings.Contains(r.out, c.out) || !strings.Contains(r.err, c.err) {
			t.Errorf("%+v: %+v", c, r)
		}
		if r := run(t, "", "dead", "discard", "dlv_1", "dlv_2", "--reason=a test", "-o", "json", "--api="+api); r.code != c.code || !strings.Contains(r.out, `"results"`) {
			t.Errorf("%+v: as JSON: %+v", c, r)
		}
	}
}

// A dead letter without its payload says so, and one with it does not.
func TestDeadShowWithoutPayload(t *testing.T) {
	t.Parallel()
	const gone = "Its payload is not kept any more"
	with := anEvidence()
	with.Payload = client.Payload{Encoding: "utf8", Content: `{"a":1}`, Length: 7}
	for _, c := range []struct {
		l    client.DeadLetterEvidence
		says string
		not  string
	}{{anEvidence(), gone, "payload ("}, {with, "payload (7 bytes, utf8)", gone}} {
		api := knowing(t, http.StatusNotFound, map[string]any{"GET /v1/dead-letters/dlv_1": c.l})
		if r := run(t, "", "dead", "show", "dlv_1", "--api="+api); r.code != exitOK || !strings.Contains(r.out, c.says) || strings.Contains(r.out, c.not) {
			t.Errorf("want %q and not %q: %+v", c.says, c.not, r)
		}
	}
}

// A change whose answer never came may have been made: nobody is asked whether the
// service runs, but told how to see.
func TestChangesWithoutAnAnswer(t *testing.T) {
	t.Parallel()
	over := make(chan struct{})
	frozen := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		select {
		case <-over:
		case <-r.Context().Done():
		}
	}))
	t.Cleanup(frozen.Close)
	t.Cleanup(func() { close(over) })
	dying := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }))
	t.Cleanup(dying.Close)
	cut := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Length", "100")
		_, _ = w.Write([]byte(`{"id":`))
	}))
	t.Cleanup(cut.Close)
	unwell := answering(t, http.StatusServiceUnavailable, "application/problem+json", `{"status":503,"code":"unavailable","detail":"Redis did not answer."}`)
	const notKnown = "whether it was done is not known"
	for command, look := range map[string]string{
		"redrive pause rdv_1 --reason=lunch":    "See how it stands: fanout redrive show rdv_1",
		"redrive abort rdv_1 --reason=enough":   "See how it stands: fanout redrive show rdv_1",
		"redrive approve rdv_1 --effect=seen":   "See how it stands: fanout redrive show rdv_1",
		"redrive start --all --reason=it-works": "It may have been made, and its canary sent. Look before you start another: fanout redrive ls",
		"dead discard dlv_1 --reason=a-test":    "Discard them again to see",
		"subscribers pause sub_1":               "Look whether it was done before you do it again.",
	} {
		for what, api := range map[string]string{"frozen": frozen.URL, "dying": dying.URL, "cut off": cut.URL, "unwell": unwell} {
			t.Run(what+" "+command, func(t *testing.T) {
				t.Parallel()
				r := run(t, "", append(strings.Fields(command), "--timeout=300ms", "--api="+api)...)
				said := strings.Contains(r.err, look) || (what == "unwell" && strings.HasPrefix(look, "Look whether")) // the server's own word is enough
				if r.code != exitUnavailable || !said || strings.Contains(r.err, "Is the service running there?") {
					t.Errorf("exit code %d, want %q\n%s", r.code, look, r.err)
				}
				if what != "unwell" && !strings.Contains(r.err, notKnown) {
					t.Errorf("it does not say %q:\n%s", notKnown, r.err)
				}
			})
		}
	}
	// What cannot have been made raises no doubt: nobody was there, or nothing was to change.
	silent, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	_ = silent.Close()
	for _, line := range []string{"redrive start --all --reason=it-works --api=http://" + silent.Addr().String(), "redrive plan --all --api=" + frozen.URL, "redrive show rdv_1 --api=" + frozen.URL} {
		if r := run(t, "", append(strings.Fields(line), "--timeout=300ms")...); r.code != exitUnavailable || strings.Contains(r.err, notKnown) || !strings.Contains(r.err, "Is the service running there?") {
			t.Errorf("%s: %+v", line, r)
		}
	}
}

// A hold's note says a time of the clock; what follows it says how far off that is.
func TestThatTime(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		h    client.Hold
		want string
	}{
		{client.Hold{}, ""},
		{client.Hold{Until: noon.Add(time.Second), Probe: "dlv_1"}, ""},
		{client.Hold{Until: noon.Add(4 * time.Second)}, " That time is in 4s (2026-03-01 12:00:04Z)."},
		{client.Hold{Until: noon}, " That time has come (2026-03-01 12:00:00Z)."},
		{client.Hold{Until: before(time.Minute)}, " That time has come (2026-03-01 11:59:00Z)."},
	} {
		if got := thatTime(c.h, noon); got != c.want {
			t.Errorf("%q, want %q", got, c.want)
		}
	}
}

package cli

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/alecthomas/kong"
)

func leaves(t *testing.T) []*kong.Node {
	t.Helper()
	return newParser(new(root), io.Discard, io.Discard, func(int) {}).Model.Leaves(false)
}

// Each command has examples, and each example is a command line that is understood.
func TestExamplesAreUnderstood(t *testing.T) {
	t.Parallel()
	seen := 0
	for _, leaf := range leaves(t) {
		if help := helpOf(leaf.FullPath()); help == "" || !strings.HasSuffix(help, exitCodes) {
			t.Errorf("%s has no example, or no exit codes:\n%s", leaf.FullPath(), help)
		}
	}
	for name, text := range shownExamples {
		for line := range strings.Lines(text) {
			for part := range strings.SplitSeq(quotedBar.ReplaceAllStringFunc(line, func(s string) string { return strings.ReplaceAll(s, "|", "\x00") }), "|") {
				words := shellWords(strings.TrimSpace(strings.ReplaceAll(part, "\x00", "|")))
				if len(words) == 0 || words[0] != "fanout" {
					continue
				}
				seen++
				var r root
				k, err := newParser(&r, io.Discard, io.Discard, func(int) {}).Parse(words[1:])
				if err != nil {
					t.Errorf("%s: %v", strings.TrimSpace(line), err)
				} else if got := strings.TrimPrefix(k.Selected().FullPath(), "fanout "); got != name {
					t.Errorf("an example of %q is of %q", name, got)
				}
				if !Knows(words[1:]) {
					t.Errorf("%v is not known", words)
				}
			}
		}
	}
	if seen < len(shownExamples) {
		t.Errorf("%d examples of %d commands", seen, len(shownExamples))
	}
}

// quotedBar is no pipe.
var quotedBar = regexp.MustCompile(`'[^']*'`)

// shellWords splits as a shell does, as far as the examples need it.
func shellWords(line string) []string {
	var words []string
	for _, m := range regexp.MustCompile(`(?:[^\s']|'[^']*')+`).FindAllString(line, -1) {
		words = append(words, strings.ReplaceAll(m, "'", ""))
	}
	return words
}

// What an example reads is there, and its ids are told to be examples.
func TestExamplesCanBeCopied(t *testing.T) {
	t.Parallel()
	for name, text := range shownExamples {
		for _, file := range regexp.MustCompile(`examples/\S+`).FindAllString(text, -1) {
			if _, err := os.Stat("../../" + file); err != nil {
				t.Errorf("%s: %v", name, err)
			}
		}
		for _, id := range regexp.MustCompile(`\b(?:sub|evt|rdv|key|dlv)_\w+`).FindAllString(text, -1) {
			if !strings.Contains(text, "--id="+id) && !sampleIDs.MatchString(id) {
				t.Errorf("%s: %s is not told to be an example", name, id)
			}
		}
	}
	if help := helpOf("fanout redrive start"); !strings.Contains(help, "sub_01K8Z5 stands for the id of a subscriber of yours: fanout subscribers ls lists them") ||
		strings.Count(help, "stands for") != 2 {
		t.Error(help)
	}
}

func TestKnowsItsCommandsWhereverTheFlagsStand(t *testing.T) {
	t.Parallel()
	for line, want := range map[string]bool{
		"subscribers ls": true, "-o json subscribers ls": true, "--api=http://x --timeout 1s explain dlv_1": true,
		"subscribers": true, "trigger --help": true, "events show": true,
		"": false, "--help": false, "--version": false, "serve": false, "serve --listen=127.0.0.1:1": false,
		"dev --demo": false, "subscriber ls": false, "loadtest --short --out tail": false,
	} {
		if got := Knows(strings.Fields(line)); got != want {
			t.Errorf("%q: %v", line, got)
		}
	}
}

// No secret can be given where the whole machine sees it.
func TestNoSecretOnTheCommandLine(t *testing.T) {
	t.Parallel()
	for _, leaf := range leaves(t) {
		for _, group := range leaf.AllFlags(false) {
			for _, f := range group {
				if slices.Contains([]string{"key", "secret", "token", "header", "password"}, f.Name) {
					t.Errorf("%s has --%s", leaf.FullPath(), f.Name)
				}
			}
		}
	}
}

func TestExitCodesAndWhatIsSaid(t *testing.T) {
	t.Parallel()
	const problem = `{"type":"urn:x","title":"T","status":%d,"code":"%s","detail":"%s","request_id":"req_1","errors":[{"pointer":"/url","detail":"must be https"},{"parameter":"limit","detail":"too\u001b[2J much"}]}`
	say := func(status int, code, detail string) string {
		return answering(t, status, "application/problem+json", fmt.Sprintf(problem, status, code, detail))
	}
	nobody := "http://127.0.0.1:1"
	cases := []struct {
		name string
		args string
		code int
		says []string
	}{
		{"help", "subscribers ls --help", exitOK, nil},
		{"no such command", "subscribers list", exitUsage, []string{`there is no command "subscribers list" (did you mean one of "ls", "test"?); there are ls, show, create,`, `fanout subscribers --help`}},
		{"half a command", "redrive", exitUsage, []string{`say what to do: plan, start, ls, show, approve, pause, resume, abort, watch`, `fanout redrive --help`}},
		{"nearly a command", "events pst", exitUsage, []string{`there is no command "events pst" (did you mean "post"?)`}},
		{"no argument", "explain", exitUsage, []string{`fanout explain needs <delivery>`, `fanout explain --help`}},
		{"one argument more", "explain dlv_1 dlv_2", exitUsage, []string{`"dlv_2" is too much: fanout explain takes <delivery>`}},
		{"no such flag", "keys ls --pages=3", exitUsage, []string{`unknown flag --pages`, `fanout keys ls --help`}},
		{"a duration without unit", "audit --timeout=5", exitUsage, []string{`--timeout: "5" is no duration: it needs a unit (ms, s, m or h), such as 5s`}},
		{"a duration in days", "keys create --name=n --role=viewer --expires=30d", exitUsage, []string{`"30d" is no duration: the units are ms, s, m and h, so give 720h`}},
		{"a duration of words", "redrive plan --all --within=soon", exitUsage, []string{`"soon" is no duration: want numbers with their units`}},
		{"a policy in days", "subscribers create --url=https://x --policy=max_age=1d", exitUsage, []string{`--policy=max_age=1d: "1d" is no duration`, `24h`}},
		{"a policy without unit", "subscribers create --url=https://x --policy=attempt_timeout=5", exitUsage, []string{`--policy=attempt_timeout=5: "5" is no duration`, `5s`}},
		{"a day by its name", "events post --type=a.b --shipment=s --occurred-at=yesterday", exitUsage, []string{`--occurred-at: "yesterday" is no time: want a date and a time with an offset`}},
		{"a time without offset", "events post --type=a.b --shipment=s --occurred-at=2026-03-01T09:30:00", exitUsage, []string{`it has no offset: 2026-03-01T09:30:00Z is UTC`}},
		{"a date", "dead ls --since=2d", exitUsage, []string{`so give 48h`}},
		{"a state that has no list", "deliveries ls --subscriber=sub_1 --state=delivered", exitUsage, []string{`those that are delivered are listed by --event`}},
		{"no state", "deliveries ls --subscriber=sub_1 --state=lost", exitUsage, []string{`"lost" is no state: want pending, scheduled, leased or dead`}},
		{"a path of the API", "keys self --api=http://127.0.0.1:1/v1/keys", exitUsage, []string{`give the address alone: http://127.0.0.1:1`}},
		{"the page", "keys self --api=http://127.0.0.1:1/oncall", exitUsage, []string{`is a page; give the address alone: http://127.0.0.1:1`}},
		{"a bad value", "audit --output=xml", exitUsage, []string{`must be one of "table","json"`}},
		{"no API at that address", "keys self --api=nonsense", exitUsage, []string{"FANOUT_API", "http://"}},
		{"whose deliveries", "deliveries ls", exitUsage, []string{"--event or --subscriber"}},
		{"no reason", "deliveries cancel dlv_1", exitUsage, []string{"--reason"}},
		{"nothing to change", "subscribers patch sub_1", exitUsage, []string{"what to change"}},
		{"a policy's field that is none", "subscribers create --url=https://x --policy=max_retries=3", exitUsage, []string{`unknown field "max_retries"`}},
		{"no file", "events batch no-such-file", exitUsage, []string{"no-such-file"}},
		{"no key file", "keys self --key-file=no-such-file", exitUsage, []string{"no-such-file"}},
		{"listen for all", "listen --addr=0.0.0.0:0", exitUsage, []string{"loopback"}},
		{"unreachable", "keys self --api=" + nobody, exitUnavailable, []string{nobody + " gave no answer", "tried 4 times in ", "connection refused", "FANOUT_API", "fanout dev"}},
		{"too slow", "keys self --timeout=1ms --api=" + say(503, "unavailable", "Redis did not answer."), exitUnavailable, nil},
		{"unwell", "keys self --api=" + say(503, "unavailable", "Redis did not answer."), exitUnavailable, []string{"fanout: Redis did not answer.", "request req_1"}},
		{
			"refused", "keys self --api=" + say(422, "invalid_request", "Nothing was changed."), exitFailed,
			[]string{"fanout: Nothing was changed.\n  /url: must be https\n  limit: too<001b>[2J much\n  invalid_request, status 422, request req_1\n"},
		},
		{"no key", "keys self --api=" + say(401, "unauthenticated", "No good key."), exitFailed, []string{"FANOUT_KEY", "--key-file"}},
		{"forbidden", "keys self --api=" + say(403, "forbidden", "Not for this role."), exitFailed, []string{"fanout: Not for this role."}},
		{"not fanout", "keys self --api=" + answering(t, 404, "text/html", "<h1>nginx</h1>"), exitFailed, []string{"is a proxy between?", "Is http://127"}},
		{"a page with 200", "keys self --api=" + answering(t, 200, "text/html", "<h1>nginx</h1>"), exitFailed, []string{"not an answer of fanout"}},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			got := run(t, "", strings.Fields(c.args)...)
			if got.code != c.code {
				t.Errorf("exit code %d, want %d\n%s", got.code, c.code, got.err)
			}
			for _, want := range c.says {
				if !strings.Contains(got.err, want) {
					t.Errorf("it does not say %q:\n%s", want, got.err)
				}
			}
			if c.code != exitOK && got.out != "" {
				t.Errorf("on stdout: %s", got.out)
			}
			if strings.ContainsRune(got.err, 0x1b) {
				t.Errorf("an escape sequence went through: %q", got.err)
			}
		})
	}
}

// What people copy as the API's address ends in /v1.
func TestAddressWithTheVersion(t *testing.T) {
	t.Parallel()
	var asked []string
	api := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked = append(asked, r.URL.Path)
		_, _ = w.Write([]byte(`{"id":"key_1"}`))
	}))
	t.Cleanup(api.Close)
	for _, end := range []string{"", "/", "/v1", "/v1/"} {
		if r := run(t, "", "keys", "self", "--api="+api.URL+end); r.code != exitOK {
			t.Errorf("%q: %+v", end, r)
		}
	}
	if want := slices.Repeat([]string{"/v1/keys/self"}, 4); !slices.Equal(asked, want) {
		t.Errorf("asked for %v", asked)
	}
}

// -o json is what the API answered, with what this program does not know of.
func TestJSONIsWhatTheAPIAnswered(t *testing.T) {
	t.Parallel()
	one := answering(t, 200, "application/json", `{"id":"key_1","name":"n","role":"admin","newer":1.50}`)
	got := run(t, "", "keys", "self", "-o", "json", "--api="+one)
	if want := "{\n  \"id\": \"key_1\",\n  \"name\": \"n\",\n  \"role\": \"admin\",\n  \"newer\": 1.50\n}\n"; got.out != want || got.err != "" {
		t.Errorf("%q, %q", got.out, got.err)
	}
	many := answering(t, 200, "application/json", `{"data":[{"id":"key_1","newer":1.50}],"next_cursor":null}`)
	if got := run(t, "", "keys", "ls", "-o", "json", "--api="+many); !strings.Contains(strings.Join(strings.Fields(got.out), ""), `{"data":[{"id":"key_1","newer":1.50}]}`) {
		t.Errorf("%q, %q", got.out, got.err)
	}
	none := answering(t, 200, "application/json", `{"data":[],"next_cursor":null}`)
	if got := run(t, "", "keys", "ls", "-o", "json", "--api="+none); got.out != "{\n  \"data\": []\n}\n" {
		t.Errorf("%q, %q", got.out, got.err)
	}
}

// Whoever has seen enough closes the pipe, and that is no failure; but a secret that
// is shown once must not get lost in silence.
func TestBrokenPipe(t *testing.T) {
	t.Parallel()
	in := strings.NewReader("")
	for _, c := range []struct {
		api  string
		args []string
		code int
		says string
	}{
		{`{"data":[{"id":"key_1"}]}`, []string{"keys", "ls"}, exitOK, ""},
		{`{"id":"key_1","key":"fok_1"}`, []string{"keys", "create", "--name=n", "--role=viewer"}, exitFailed, "could not be written"},
	} {
		r, w, err := os.Pipe()
		if err != nil {
			t.Fatal(err)
		}
		_ = r.Close()
		var errs bytes.Buffer
		code := Run(t.Context(), append(c.args, "--api="+answering(t, 200, "application/json", c.api)), in, w, &errs)
		_ = w.Close()
		if code != c.code || (c.says == "") != (errs.Len() == 0) || !strings.Contains(errs.String(), c.says) {
			t.Errorf("%v: exit code %d, %s", c.args, code, &errs)
		}
	}
	full := &failing{syscall.ENOSPC}
	var errs bytes.Buffer
	api := answering(t, 200, "application/json", `{"data":[]}`)
	if code := Run(t.Context(), []string{"keys", "ls", "--api=" + api}, in, full, &errs); code != exitFailed || !strings.Contains(errs.String(), "no space left") {
		t.Errorf("a full disk: exit code %d, %s", code, &errs)
	}
}

type failing struct{ err error }

func (f *failing) Write([]byte) (int, error) { return 0, f.err }

// Only a person at a terminal is asked, and only a yes is one.
func TestConfirm(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		terminal, yes bool
		says          string
		goes, asked   bool
	}{
		{false, false, "", true, false},
		{true, true, "", true, false},
		{true, false, "y\n", true, true},
		{true, false, "YES\n", true, true},
		{true, false, "\n", false, true},
		{true, false, "", false, true},
		{true, false, "yeah no\n", false, true},
	} {
		var errs bytes.Buffer
		s := &session{in: strings.NewReader(c.says), err: &errs, terminal: c.terminal}
		err := s.confirm(t.Context(), c.yes, "Delete it?")
		if (err == nil) != c.goes || (errs.Len() > 0) != c.asked {
			t.Errorf("%+v: %v, %q", c, err, &errs)
		}
	}
}

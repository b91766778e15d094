package cli

import (
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/fanout/fanout/client"
)

// takes is an API that accepts every batch. It is at an address of its own, so that it
// can go and come again there.
type takes struct {
	t    *testing.T
	addr string
	now  *httptest.Server
	got  int
}

func (a *takes) up() {
	a.t.Helper()
	addr := a.addr
	if addr == "" {
		addr = "127.0.0.1:0"
	}
	ln, err := new(net.ListenConfig).Listen(a.t.Context(), "tcp", addr)
	if err != nil {
		a.t.Fatal(err)
	}
	a.addr = ln.Addr().String()
	a.now = httptest.NewUnstartedServer(http.HandlerFunc(a.answer))
	_ = a.now.Listener.Close()
	a.now.Listener = ln
	a.now.Start()
}

func (a *takes) answer(w http.ResponseWriter, r *http.Request) {
	var in struct{ Events []struct{ ID string } }
	if err := json.NewDecoder(r.Body).Decode(&in); err != nil {
		a.t.Error(err)
	}
	var out struct {
		Results []client.BatchItem `json:"results"`
	}
	for i, e := range in.Events {
		out.Results = append(out.Results, client.BatchItem{Index: i, Status: http.StatusAccepted, ID: e.ID})
	}
	a.got += len(in.Events)
	if err := json.NewEncoder(w).Encode(out); err != nil {
		a.t.Error(err)
	}
}

// A batch goes on when the service comes back, and says that it waits.
func TestBatchRidesOutARestart(t *testing.T) {
	t.Parallel()
	api := &takes{t: t}
	api.up()
	api.now.Close()
	var in strings.Builder
	const n = 2500
	for i := range n {
		fmt.Fprintf(&in, "{\"id\":\"evt_%d\"}\n", i)
	}
	var out, errs shared
	code := make(chan int, 1)
	go func() {
		code <- Run(t.Context(), []string{"events", "batch", "--api=http://" + api.addr}, strings.NewReader(in.String()), &out, &errs)
	}()
	until(t, "it says that it waits", func() bool {
		return strings.Contains(errs.String(), "gives no answer; trying again, for up to 30s")
	})
	api.up()
	select {
	case c := <-code:
		if c != exitOK || !strings.HasPrefix(out.String(), "accepted 2500, ") {
			t.Errorf("exit code %d\n%s%s", c, out.String(), errs.String())
		}
	case <-time.After(patience):
		t.Fatal("it does not end")
	}
	api.now.Close()
	if api.got != n {
		t.Errorf("%d events came, want %d", api.got, n)
	}
}

// What is said of the attempts is what was done: the timeout is named only if it ended
// them.
func TestWhatWasTried(t *testing.T) {
	t.Parallel()
	const nobody = "--api=http://127.0.0.1:1"
	few := run(t, "", "keys", "self", nobody)
	if !strings.Contains(few.err, "tried 4 times in ") || strings.Contains(few.err, "--timeout") {
		t.Errorf("a few attempts: %+v", few)
	}
	post := run(t, "", "trigger", "shipment.created", "--timeout=1s", nobody)
	for _, want := range []string{"trying again, for up to 1s", "times in 1", "Its time was up: --timeout gives it more than 1s.", "Post it again as it was, with --id=evt_", "--occurred-at="} {
		if post.code != exitUnavailable || !strings.Contains(post.err, want) {
			t.Errorf("it does not say %q: %+v", want, post)
		}
	}
}

// An event without an id whose fate is not known may be posted twice, and that is said.
func TestBatchStoppedWithoutAnID(t *testing.T) {
	t.Parallel()
	r := run(t, `{"type":"a.b"}`, "events", "batch", "--timeout=300ms", "--api=http://127.0.0.1:1")
	if r.code != exitUnavailable || !strings.Contains(r.err, "1 event had no id, and may have been accepted") || strings.Contains(r.err, "The whole can be") {
		t.Errorf("%+v", r)
	}
}

package demo

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/fanout/fanout/internal/delivery"
	"github.com/fanout/fanout/internal/subscriber"
)

// open starts one receiver of the given manner, which knows vectorSecret.
func open(t *testing.T, m manner) (rc *receiver, url string, stop func()) {
	t.Helper()
	c := character{name: "one", manner: m}
	rs, err := openReceivers(t.Context(), []character{c})
	if err != nil {
		t.Fatal(err)
	}
	stopped := false
	stop = func() {
		if stopped {
			return
		}
		stopped = true
		if err := rs.close(context.WithoutCancel(t.Context())); err != nil {
			t.Error(err)
		}
	}
	t.Cleanup(stop)
	rs.list[0].setSecret(vectorSecret)
	return rs.list[0], rs.url(c), stop
}

func TestHealthyReceiver(t *testing.T) {
	t.Parallel()
	rc, url, _ := open(t, healthy)
	s := newSender(t)
	for _, id := range []string{"dlv_a", "dlv_b", "dlv_a"} {
		if a := s.Send(t.Context(), request(url, id)); a.Status != http.StatusOK {
			t.Errorf("%s: %+v", id, a)
		}
	}
	if got, want := rc.count(), (tally{requests: 3, verified: 3, ids: 2, delivered: 2, duplicates: 1}); got != want {
		t.Errorf("counted %+v, want %+v", got, want)
	}
	if got := rc.sighted("dlv_a"); got.requests != 2 || !got.signed {
		t.Errorf("saw %+v of dlv_a", got)
	}
}

func TestReceiverRefusesForgeries(t *testing.T) {
	t.Parallel()
	rc, url, _ := open(t, healthy)
	s := newSender(t)
	forged := request(url, "dlv_a")
	forged.Secrets = []subscriber.Secret{{Value: otherSecret}}
	stale := request(url, "dlv_b")
	stale.Timestamp = time.Now().Add(-time.Hour)
	unsigned, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url, strings.NewReader("{}"))
	if err != nil {
		t.Fatal(err)
	}
	for _, a := range []int{s.Send(t.Context(), forged).Status, s.Send(t.Context(), stale).Status, status(t, unsigned)} {
		if a != http.StatusUnauthorized {
			t.Errorf("status %d, want 401", a)
		}
	}
	if got, want := rc.count(), (tally{requests: 3, bad: 3}); got != want {
		t.Errorf("counted %+v, want %+v", got, want)
	}
	if got := rc.sighted("dlv_a"); got.signed || !got.seen {
		t.Errorf("took a forgery for signed: %+v", got)
	}
}

func status(t *testing.T, r *http.Request) int {
	t.Helper()
	tr := &http.Transport{}
	defer tr.CloseIdleConnections()
	resp, err := tr.RoundTrip(r)
	if err != nil {
		t.Fatal(err)
	}
	_ = resp.Body.Close()
	return resp.StatusCode
}

// It goes by the turn, not by the delivery: whichever comes after the bad ones is taken.
func TestFlakyReceiver(t *testing.T) {
	t.Parallel()
	rc, url, _ := open(t, flaky)
	s := newSender(t)
	const cycles = 3
	for i := range cycles * fewRequests {
		want := http.StatusNoContent
		if i%fewRequests < refusals {
			want = http.StatusServiceUnavailable
		}
		if a := s.Send(t.Context(), request(url, fmt.Sprint("dlv_", i))); a.Status != want {
			t.Errorf("request %d: %+v, want %d", i, a, want)
		}
	}
	const all, taken = cycles * fewRequests, cycles * (fewRequests - refusals)
	if got, want := rc.count(), (tally{requests: all, verified: all, ids: all, delivered: taken}); got != want {
		t.Errorf("counted %+v, want %+v", got, want)
	}
}

// One that hung comes back, whatever it was sent meanwhile.
func TestHangingReceiverComesBack(t *testing.T) {
	t.Parallel()
	rc, url, _ := open(t, hanging)
	s := newSender(t)
	for i := range manyRequests + 1 {
		r := request(url, fmt.Sprint("dlv_", i))
		want := 200
		if i%manyRequests < hangs {
			r.Timeout, want = 100*time.Millisecond, 0
		}
		if a := s.Send(t.Context(), r); a.Status != want {
			t.Errorf("request %d: %+v, want %d", i, a, want)
		}
	}
	if c := rc.count(); c.delivered != manyRequests-hangs || c.duplicates != 0 {
		t.Errorf("counted %+v", c)
	}
}

func TestRejectingReceiverSaysWhy(t *testing.T) {
	t.Parallel()
	rc, url, _ := open(t, rejecting)
	a := newSender(t).Send(t.Context(), request(url, "dlv_a"))
	if a.Outcome != delivery.HTTP422 || !strings.Contains(a.Excerpt, `"error":"unknown_shipment"`) || !strings.Contains(a.Excerpt, "shp_1") {
		t.Errorf("answered %+v", a)
	}
	if got, want := rc.count(), (tally{requests: 1, verified: 1, ids: 1}); got != want {
		t.Errorf("counted %+v, want %+v", got, want)
	}
}

// To return from a handler is to answer 200, which would be read as a delivery.
func TestHangingReceiverAbortsAtTheEnd(t *testing.T) {
	t.Parallel()
	quit := make(chan struct{})
	close(quit)
	rc := &receiver{role: character{manner: hanging}, quit: quit, secret: vectorSecret}
	srv := httptest.NewServer(rc)
	defer srv.Close()
	if a := newSender(t).Send(t.Context(), request(srv.URL, "dlv_a")); a.Outcome != delivery.Reset || rc.count().verified != 1 {
		t.Errorf("answered %+v, want a connection that ends", a)
	}
}

func TestHangingReceiver(t *testing.T) {
	t.Parallel()
	rc, url, stop := open(t, hanging)
	s := newSender(t)
	short := request(url, "dlv_a")
	short.Timeout = 100 * time.Millisecond
	if a := s.Send(t.Context(), short); a.Outcome != delivery.Timeout {
		t.Errorf("answered %+v, want a timeout", a)
	}

	got := make(chan delivery.Outcome, 1)
	go func() { got <- s.Send(t.Context(), request(url, "dlv_b")).Outcome }()
	until(t, func() bool { return rc.count().requests == 2 }) // it is on the wire
	stop()
	if o := <-got; o == delivery.OK || o == delivery.Timeout {
		t.Error("closing the receiver answered 2xx")
	}
	if c := rc.count(); c.delivered != 0 || c.verified != 2 {
		t.Errorf("counted %+v", c)
	}
}

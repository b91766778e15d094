package cli

import (
	"context"
	"encoding/base64"
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/fanout/fanout/client"
	"github.com/fanout/fanout/internal/subscriber"
	"github.com/fanout/fanout/internal/webhook"
)

// The secrets of these tests.
var (
	testSecret  = "whsec_" + base64.StdEncoding.EncodeToString([]byte("a secret of thirty-two bytes ..."))
	otherSecret = "whsec_" + base64.StdEncoding.EncodeToString([]byte("another one of thirty-two bytes."))
)

// A receiver registers itself, shows what comes, and Ctrl-C takes its subscriber away.
func TestListenRegistersAndLeavesNothing(t *testing.T) {
	t.Parallel()
	s := newService(t)
	l := start(t, s.args("listen", "--register=shipment.*,parcel.*", "--fail=0%")...)
	until(t, "it listens", func() bool { return strings.Contains(l.err.String(), "Listening on http://127.0.0.1:") })
	id := regexp.MustCompile(`Registered as (sub_\w+)`).FindStringSubmatch(l.err.String())
	if id == nil {
		t.Fatal(l.err.String())
	}
	s.ok("trigger", "shipment.delivered", "--shipment=shp_mine")
	until(t, "the webhook is shown", func() bool { return strings.Contains(l.out.String(), "shp_mine") })
	if out := l.out.String(); !regexp.MustCompile(`Z  dlv_\w+  attempt 1  signed (under )?\d+s ago  occurred (under )?\d+s ago  shipment.delivered  verified  -> 200\n    \{\n      "type"`).MatchString(out) {
		t.Error(out)
	}
	if code := l.end(t); code != exitOK || !strings.Contains(l.err.String(), "1 webhook came, 0 of them again, 0 not verified.") || !strings.Contains(l.err.String(), "Deleted "+id[1]) {
		t.Errorf("exit code %d, %s", code, l.err.String())
	}
	if _, err := s.GetSubscriber(t.Context(), id[1]); !errors.Is(err, client.ErrNotFound) {
		t.Errorf("its subscriber: %v", err)
	}
	if strings.Contains(l.out.String()+l.err.String(), "whsec_") {
		t.Error("the secret was shown")
	}
}

// The bad answers are what the service sees, and a webhook that comes again is told.
func TestListenBehavesBadly(t *testing.T) {
	t.Parallel()
	s := newService(t)
	l := start(t, s.args("listen", "--register=*", "--status=503", "--retry-after=7s", "-o", "json")...)
	until(t, "it listens", func() bool { return strings.Contains(l.err.String(), "Listening on") })
	sub := regexp.MustCompile(`sub_\w+`).FindString(l.err.String())
	s.ok("trigger", "shipment.delivered")
	var d client.Delivery
	until(t, "its first attempt is settled", func() bool {
		page, err := s.ListDeliveries(t.Context(), client.DeliveryFilter{SubscriberID: sub}, client.Page{})
		if err != nil || len(page.Data) != 1 || page.Data[0].Attempts == 0 || page.Data[0].State != client.Scheduled {
			return false
		}
		d, err = s.GetDelivery(t.Context(), page.Data[0].ID)
		return err == nil
	})
	if a := d.Evidence[0]; a.Status != 503 || time.Duration(a.RetryAfter) != 7*time.Second {
		t.Errorf("%+v", a)
	}
	var one received
	if err := strictRead(l.out.String(), &one); err != nil || one.WebhookID != d.ID || !one.Verified || one.Answer != 503 || one.Times != 1 || len(one.Body) == 0 {
		t.Errorf("%v: %s", err, l.out.String())
	}
	if code := l.end(t); code != exitOK {
		t.Errorf("exit code %d, %s", code, l.err.String())
	}
}

// Nobody reads any more: that too must delete the subscriber.
func TestListenEndsWithItsReader(t *testing.T) {
	t.Parallel()
	s := newService(t)
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	var errs shared
	code := make(chan int, 1)
	go func() {
		code <- Run(t.Context(), s.args("listen", "--register=*"), strings.NewReader(""), w, &errs)
	}()
	until(t, "it listens", func() bool { return strings.Contains(errs.String(), "Listening on") })
	_ = r.Close()
	s.ok("trigger", "shipment.delivered")
	select {
	case got := <-code:
		if got != exitOK || !strings.Contains(errs.String(), "Deleted sub_") {
			t.Errorf("exit code %d, %s", got, errs.String())
		}
	case <-time.After(patience):
		t.Fatal("it does not end")
	}
}

// webhooks sends to a receiver as the service does.
type webhooks struct {
	t   *testing.T
	url string
	out *shared
}

func newWebhooks(t *testing.T, secret string, flags *listenCmd) *webhooks {
	t.Helper()
	if err := flags.manners.check(); err != nil {
		t.Fatal(err)
	}
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	out := &shared{}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	s := &session{Remote: Remote{Output: "table"}, out: &keeper{w: out}, err: io.Discard}
	go func() { done <- newReceiver(s, flags, secret).serve(ctx, ln, func() error { return nil }) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	return &webhooks{t, "http://" + ln.Addr().String(), out}
}

// send gives the status, or 0 if there was no answer in time.
func (w *webhooks) send(ctx context.Context, secret, id, body string, at time.Time) int {
	w.t.Helper()
	sig, err := webhook.Sign([]subscriber.Secret{{Value: secret}}, id, at, []byte(body))
	if err != nil {
		w.t.Fatal(err)
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, w.url, strings.NewReader(body))
	if err != nil {
		w.t.Fatal(err)
	}
	req.Header.Set(webhook.HeaderID, id)
	req.Header.Set(webhook.HeaderTimestamp, strconv.FormatInt(at.Unix(), 10))
	req.Header.Set(webhook.HeaderSignature, sig)
	resp, err := http.DefaultTransport.RoundTrip(req)
	if err != nil {
		return 0
	}
	_ = resp.Body.Close()
	return resp.StatusCode
}

func TestReceiverTellsWhatIsWrong(t *testing.T) {
	t.Parallel()
	w := newWebhooks(t, testSecret, &listenCmd{BodyLimit: 40})
	now := time.Now()
	for _, c := range []struct {
		secret, id, body string
		at               time.Time
		says             string
	}{
		{testSecret, "dlv_1", `{"type":"a.b"}`, now, "dlv_1  attempt 0  signed under 1s ago  a.b  verified  -> 200"},
		{testSecret, "dlv_6", `{"type":"a.b","timestamp":"` + now.Add(-3*time.Hour).Format(time.RFC3339) + `"}`, now, "signed under 1s ago  occurred 3h ago  a.b"},
		{testSecret, "dlv_7", `{"type":"a.b","timestamp":"` + now.Add(3*time.Hour).Format(time.RFC3339) + `"}`, now, "occurred 2h59m ahead of this clock"},
		{testSecret, "dlv_1", `{"type":"a.b"}`, now, "again (2 times)"},
		{otherSecret, "dlv_2", `{}`, now, "NOT VERIFIED: bad signature"},
		{testSecret, "dlv_3", `{}`, now.Add(-time.Hour), "NOT VERIFIED: timestamp outside the tolerance"},
		{testSecret, "dlv_4", "\x1b[2Jboo", now, "<001b>[2Jboo"},
		{testSecret, "dlv_5", `{"long":"` + strings.Repeat("x", 100) + `"}`, now, "more (--body-limit)"},
	} {
		if status := w.send(t.Context(), c.secret, c.id, c.body, c.at); status != http.StatusOK {
			t.Errorf("%s: %d", c.id, status)
		}
		if out := w.out.String(); !strings.Contains(out, c.says) || strings.ContainsRune(out, 0x1b) {
			t.Errorf("%s: it does not say %q:\n%s", c.id, c.says, out)
		}
	}
}

func TestReceiverHangsAndIsSlow(t *testing.T) {
	t.Parallel()
	hangs := newWebhooks(t, testSecret, &listenCmd{manners: manners{Hang: true}})
	ctx, cancel := context.WithCancel(t.Context())
	gave := make(chan int, 1)
	go func() { gave <- hangs.send(ctx, testSecret, "dlv_1", "{}", time.Now()) }()
	until(t, "it is shown, though it hangs", func() bool { return strings.Contains(hangs.out.String(), "it hangs") })
	cancel()
	if status := <-gave; status != 0 {
		t.Errorf("it was answered: %d", status)
	}
	const pause = 50 * time.Millisecond
	slow := newWebhooks(t, testSecret, &listenCmd{manners: manners{Slow: pause, Status: 204}})
	begin := time.Now()
	if status := slow.send(t.Context(), testSecret, "dlv_1", "{}", begin); status != 204 || time.Since(begin) < pause {
		t.Errorf("%d after %s", status, time.Since(begin))
	}
}

func TestManners(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]percent{"30%": 0.3, "0%": 0, "100%": 1, "0.25": 0.25, "1": 1, "1.5%": 0.015} {
		var p percent
		if err := p.UnmarshalText([]byte(text)); err != nil || p != want {
			t.Errorf("%s: %v, %v", text, p, err)
		}
	}
	for _, bad := range []string{"", "%", "30", "-1%", "101%", "NaN", "a"} {
		if new(percent).UnmarshalText([]byte(bad)) == nil {
			t.Errorf("%q passed", bad)
		}
	}
	for _, bad := range []manners{{Status: 100}, {Status: 700}, {Hang: true, Status: 500}, {Slow: -1}, {RetryAfter: time.Millisecond}} {
		if bad.check() == nil {
			t.Errorf("%+v passed", bad)
		}
	}
	third := manners{Fail: 0.3}
	if err := third.check(); err != nil {
		t.Fatal(err)
	}
	bad := 0
	const n = 10_000
	for range n {
		if a := third.draw(); a.bad && a.status == 500 {
			bad++
		}
	}
	if bad < n/4 || bad > n/2-n/8 {
		t.Errorf("%d of %d were bad", bad, n)
	}
}

// A secret that nothing can be verified by is refused before anything comes.
func TestVerifyingSecret(t *testing.T) {
	t.Parallel()
	for text, says := range map[string]string{"whsec_short": "cannot be used", "nonsense": "cannot be used", "\n": "empty"} {
		r := run(t, "", "listen", "--secret-file="+file(t, text))
		if r.code != exitUsage || !strings.Contains(r.err, says) || text != "\n" && strings.Contains(r.err, text) {
			t.Errorf("%q: %+v", text, r)
		}
	}
}

package cli

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/fanout/fanout/client"
)

func anEvidence() client.DeadLetterEvidence {
	d := aDelivery(client.Dead)
	d.EndedAt, d.Reason, d.RedriveGeneration = before(15*time.Second), "exhausted", 1
	d.Evidence[1].Terms = &client.Terms{
		Origin: "https://example.com", Class: "standard", SubscriberVersion: 3, Policy: policy(),
		Headers: map[string]string{"Webhook-Id": "dlv_1", "X-Key": "***", "User-Agent": "fanout/1 \x1b[31m"},
	}
	sub := aSubscriber()
	return client.DeadLetterEvidence{
		Reason: "exhausted", Delivery: d, Subscriber: &sub, RedriveID: "rdv_1",
		Event: client.SentEvent{ID: "evt_1", Type: "shipment.delivered", ShipmentID: "shp_1", OccurredAt: "2026-03-01T11:00:00+01:00"},
	}
}

func aRedrive(state client.RedriveState) client.Redrive {
	r := client.Redrive{
		ID: "rdv_1", State: state, Reason: "it was down", AttemptBudget: 2, Canaries: 1, Within: seconds(86400),
		Filter:    &client.DeadLetterFilter{SubscriberID: "sub_1", Reason: "exhausted", Since: before(6 * time.Hour)},
		CreatedBy: "key_9", CreatedAt: before(time.Hour), Planned: true, Matched: 1203, Skipped: 3, CanaryPassed: true,
		ApprovedBy: "key_9", ApprovedAt: before(30 * time.Minute), Effect: "shown \x1b[31monce",
		RatePerSecond: 4, RateLimit: 12.5, Tally: &client.RedriveTally{Claimed: 1200, Waiting: 900, Released: 300, Out: 4, Delivered: 295, Dead: 1},
	}
	switch state {
	case client.RedrivePaused:
		r.Stopped, r.StoppedBy, r.StoppedAt = "no dispatcher is at work", "guard", before(time.Minute)
		r.Filter, r.IDs = nil, []string{"dlv_1"}
	case client.RedriveDone:
		r.EndedAt, r.Tally = before(time.Minute), &client.RedriveTally{Claimed: 1200, Released: 1200, Delivered: 1199, Dead: 1}
	case client.RedriveAwaiting:
		r.Effect, r.Tally = "", nil
	default:
	}
	return r
}

func aPreview() client.RedrivePreview {
	return client.RedrivePreview{
		Matching: 1203, AtLeast: true, Subscribers: 3, BySubscriber: []client.RedriveShare{{SubscriberID: "sub_1", DeadLetters: 1200}, {SubscriberID: "sub_2", DeadLetters: 2}},
		ByReason: []client.RedriveCause{{Reason: "exhausted", DeadLetters: 1203}}, RatePerSecond: 12.5, Takes: seconds(96),
		HeadRoom: client.HeadRoom{CapacityPerSecond: 400, ArrivalsPerSecond: 120.25, PerSecond: 279.75, Slots: 100, SlotsInUse: 12},
	}
}

// A look on a line fits on it, whatever its width.
func TestWatchLines(t *testing.T) {
	t.Parallel()
	age := 0.012
	var b strings.Builder
	for _, room := range []int{119, 79, 39, 20} {
		for _, state := range []client.RedriveState{
			client.RedrivePlanning, client.RedriveCanary, client.RedriveAwaiting, client.RedriveRunning, client.RedrivePaused, client.RedriveDone,
		} {
			line := barLine(seen{Redrive: aRedrive(state), Age: &age}, room)
			if n := utf8.RuneCountInString(line); n > room && room > 30 {
				t.Errorf("%d characters for %d: %s", n, room, line)
			}
			b.WriteString(line + "\n")
		}
	}
	b.WriteString(barLine(seen{Redrive: client.Redrive{State: client.RedrivePlanning}}, 79) + "\n")
	b.WriteString(watchLine(seen{Redrive: aRedrive(client.RedrivePaused), Age: &age}) + "\n")
	golden(t, "redrive-watch.txt", b.String())
}

func TestOrder(t *testing.T) {
	t.Parallel()
	for name, args := range map[string]string{
		"nothing":  "redrive plan",
		"both":     "redrive plan dlv_1 --type=a.b",
		"all of":   "redrive plan --all --type=a.b",
		"no word":  "redrive start --all",
		"no why":   "redrive pause rdv_1",
		"nor here": "redrive abort rdv_1",
		"nor":      "dead discard dlv_1",
		"no when":  "dead ls --since=yesterday",
		"no sight": "redrive approve rdv_1",
	} {
		if r := run(t, "", append(strings.Fields(args), "--api=http://127.0.0.1:1")...); r.code != exitUsage || r.err == "" {
			t.Errorf("%s: %+v", name, r)
		}
	}
}

// Dead letters, from the first look to the last delivery, as an operator types it.
func TestRedriveByHand(t *testing.T) {
	t.Parallel()
	s := newService(t)
	var well atomic.Bool
	e := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		if !well.Load() {
			w.WriteHeader(http.StatusUnprocessableEntity)
			_, _ = w.Write([]byte("no \x1b[31mroom"))
		}
	}))
	t.Cleanup(e.Close)
	var made client.CreatedSubscriber
	s.read(&made, "subscribers", "create", "--url="+e.URL, "--types=*")
	for range 3 {
		s.ok("trigger", "shipment.delivered")
	}
	var dead struct{ Data []client.DeadLetter }
	until(t, "all are dead", func() bool {
		s.read(&dead, "dead", "ls", "--subscriber="+made.ID, "--died-of=http_422", "--outcome=http_422", "--class=standard", "--type=shipment.delivered", "--since=1h", "--until=0s")
		return len(dead.Data) == 3
	})
	id := dead.Data[0].Delivery.ID
	if r := s.ok("dead", "show", id); !strings.Contains(r.out, "Webhook-Signature") || !strings.Contains(r.out, `"event_id"`) || strings.ContainsRune(r.out, 0x1b) {
		t.Errorf("show: %s", r.out)
	}
	if r := s.ok("dead", "discard", id, "--reason=a test"); !strings.Contains(r.out, "discarded") {
		t.Errorf("discard: %s", r.out)
	}
	if r := s.ok("redrive", "plan", "--subscriber="+made.ID); !strings.Contains(r.out, "http_422") || !strings.Contains(r.out, "head-room") {
		t.Errorf("plan: %s%s", r.out, r.err)
	}

	start := func() (r client.Redrive) {
		s.read(&r, "redrive", "start", "--subscriber="+made.ID, "--reason=it is back")
		return r
	}
	bad := start()
	if r := run(t, "", s.args("redrive", "watch", bad.ID, "--interval=100ms", "--exit-on-pause")...); r.code != exitFailed || !strings.Contains(r.err, "the guard has paused it") {
		t.Errorf("watch: %+v", r)
	}
	if r := s.ok("redrive", "show", bad.ID); !strings.Contains(r.out, "no <001b>[31mroom") || !strings.Contains(r.out, "guard: the canary failed") {
		t.Errorf("show: %s", r.out)
	}
	s.ok("redrive", "abort", bad.ID, "--reason=it is not")
	if r := run(t, "", s.args("redrive", "watch", bad.ID, "--interval=100ms")...); r.code != exitFailed || !strings.Contains(r.err, "it was aborted: it is not") {
		t.Errorf("watch: %+v", r)
	}

	well.Store(true)
	good := start()
	until(t, "the canary is delivered", func() bool {
		s.read(&good, "redrive", "show", good.ID)
		return good.State == client.RedriveAwaiting
	})
	s.ok("redrive", "pause", good.ID, "--reason=lunch")
	s.ok("redrive", "resume", good.ID, "--reason=after lunch")
	s.ok("redrive", "approve", good.ID, "--effect=the shop shows it once")
	r := s.ok("redrive", "watch", good.ID, "--interval=100ms", "-o", "json")
	if last := strings.Split(strings.TrimSpace(r.out), "\n"); !strings.Contains(last[len(last)-1], `"state":"done"`) {
		t.Errorf("watch: %s", r.out)
	}
	if r := s.ok("redrive", "ls"); strings.Count(r.out, "rdv_") != 2 || !strings.Contains(r.out, "done") {
		t.Errorf("ls: %s", r.out)
	}
	if r := s.ok("audit", "--target="+good.ID); !strings.Contains(r.out, "the shop shows it once") || !strings.Contains(r.out, "guard") {
		t.Errorf("audit: %s", r.out)
	}
}

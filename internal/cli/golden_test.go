package cli

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/fanout/fanout/client"
	"github.com/fanout/fanout/internal/delivery"
)

var noon = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

func before(d time.Duration) time.Time { return noon.Add(-d) }

func seconds(n float64) client.Duration { return client.Duration(n * float64(time.Second)) }

// policy is the service's default.
func policy() client.Policy {
	return client.Policy{
		AttemptTimeout: seconds(10), MaxAttempts: 15, BackoffBase: seconds(5), BackoffCap: seconds(3600), MaxAge: seconds(86400),
		MaxInFlight: 16, BreakerFailures: 5, RetryAfterCap: seconds(3600), MaxHeld: 100_000,
	}
}

func aSubscriber() client.Subscriber {
	return client.Subscriber{
		ID: "sub_1", Account: "acme", Name: "hook \x1b[31mof acme", URL: "https://example.com/hook?token=secret", Class: "standard",
		Filter: client.Filter{Types: []string{"shipment.*"}, Attributes: map[string][]string{"carrier": {"dhl", "ups"}}},
		Policy: policy(), Version: 3, CreatedAt: before(50 * time.Hour), UpdatedAt: before(90 * time.Second),
		Headers: map[string]string{"X-Key": "***"}, Secrets: []client.SecretInfo{
			{ID: "sec_2", CreatedAt: before(time.Hour)}, {ID: "sec_1", CreatedAt: before(50 * time.Hour), ExpiresAt: noon.Add(23 * time.Hour)},
		},
		Status:   &client.SubscriberStatus{InFlight: 2, InFlightCap: 4, LatencyMS: 120, Pending: 7, Waiting: client.Waiting{Fresh: 3, Retry: 2}},
		Warnings: []string{"backoff_cap is never reached"},
	}
}

func aDelivery(state client.State) client.Delivery {
	return client.Delivery{
		ID: "dlv_1", EventID: "evt_1", SubscriberID: "sub_1", State: state, Lane: "retry",
		AcceptedAt: before(time.Minute), ExpiresAt: noon.Add(24*time.Hour - time.Minute),
		FirstAttemptAt: before(time.Minute), LastAttemptAt: before(20 * time.Second),
		Attempts: 2, DeliveryCount: 3, Releases: 1, LastOutcome: "http_5xx", LastStatus: 503,
		Evidence: []client.Attempt{
			{Attempt: 1, DeliveryCount: 1, StartedAt: before(time.Minute), Duration: seconds(10), Outcome: "timeout", Error: "no answer within 10s", Worker: "w-1"},
			{Attempt: 2, DeliveryCount: 3, StartedAt: before(20 * time.Second), Duration: seconds(0.012), Outcome: "http_5xx", Status: 503, Excerpt: "<h1>down\n for \x1b[5mlunch</h1>", TraceID: "abc", Worker: "w-1"},
		},
	}
}

func TestTables(t *testing.T) {
	t.Parallel()
	ended := aDelivery(client.Dead)
	ended.EndedAt = before(15 * time.Second)
	for name, fill := range map[string]func(*table){
		"subscribers": func(tb *table) {
			held, paused := aSubscriber(), aSubscriber()
			held.Name, held.Status.Holds = "", []client.Hold{{Reason: "breaker"}, {Reason: "throttled"}}
			paused.Status, paused.Paused, paused.URL = nil, true, "https://example.com/"+strings.Repeat("long", 20)
			subscriberTable(tb, []client.Subscriber{aSubscriber(), held, paused}, noon)
		},
		"subscriber": func(tb *table) { subscriberRows(tb, aSubscriber(), noon) },
		"deliveries": func(tb *table) {
			next := aDelivery(client.Scheduled)
			next.NextAttemptAt = noon.Add(4 * time.Second)
			deliveryTable(tb, []client.Delivery{next, ended, {ID: "dlv_2", State: client.Leased, Lane: "fresh", Attempts: 1, AcceptedAt: noon}}, noon)
		},
		"delivery":    func(tb *table) { deliveryRows(tb, ended, noon) },
		"attempts":    func(tb *table) { attemptTable(tb, ended.Evidence, noon) },
		"dead":        func(tb *table) { deadTable(tb, []client.DeadLetter{{Reason: "exhausted", Delivery: ended}}, noon) },
		"dead-letter": func(tb *table) { deadRows(tb, anEvidence(), noon) },
		"terms":       func(tb *table) { termRows(tb, *lastTerms(anEvidence().Delivery)) },
		"discarded": func(tb *table) {
			discardTable(tb, client.Discarded{Results: []client.DiscardResult{{ID: "dlv_1", Result: "discarded"}, {ID: "dlv_2", Result: "in_redrive"}, {ID: "dlv_3", Result: "missing"}, {ID: "dlv_4", Result: "new"}, {ID: "dlv_5", Result: "in_redrive"}}}, map[string]string{"dlv_5": "rdv_1"})
		},
		"redrives": func(tb *table) {
			redriveTable(tb, []client.Redrive{aRedrive(client.RedriveRunning), aRedrive(client.RedrivePaused), aRedrive(client.RedriveAwaiting), aRedrive(client.RedriveDone)}, noon)
		},
		"redrive":        func(tb *table) { redriveRows(tb, aRedrive(client.RedriveRunning), noon) },
		"redrive-paused": func(tb *table) { redriveRows(tb, aRedrive(client.RedrivePaused), noon) },
		"preview": func(tb *table) {
			previewRows(tb, aPreview())
			tb.row("")
			shareTable(tb, aPreview())
			causeTable(tb, aPreview())
		},
		"keys": func(tb *table) {
			keyTable(tb, []client.Key{
				{ID: "key_1", Name: "orders", Role: client.RoleProducer, CreatedBy: "bootstrap", CreatedAt: before(time.Hour), LastUsedAt: before(time.Minute)},
				{ID: "key_2", Name: "acme", Role: client.RoleSubscriber, Account: "acme", CreatedBy: "key_9", CreatedAt: before(time.Hour), ExpiresAt: before(time.Minute)},
				{ID: "key_3", Name: "gone", Role: client.RoleAdmin, CreatedBy: "key_9", CreatedAt: before(time.Hour), RevokedAt: before(time.Minute)},
			}, noon)
		},
		"audit": func(tb *table) {
			auditTable(tb, []client.AuditEntry{
				{At: before(time.Minute), Actor: client.Identity{ID: "key_9", Name: "op"}, Action: "pauseSubscriber", Target: "sub_1", Reason: "lunch", RequestID: "req_1", Before: json.RawMessage(`{"paused":false}`), After: json.RawMessage(`{"paused":true}`)},
				{At: before(time.Hour), Actor: client.Identity{ID: "local", Name: "local"}, Action: "createSubscriber", Target: "sub_1", RequestID: "req_2", After: json.RawMessage(`{"url":"https://example.com"}`)},
			}, noon)
		},
	} {
		tb := &table{}
		fill(tb)
		golden(t, name+".table", tb.String())
		if strings.Contains(tb.String(), "token=") || strings.ContainsRune(tb.String(), 0x1b) {
			t.Errorf("%s shows what it must not:\n%s", name, tb)
		}
	}
}

// explained are delivery stories, from the first attempt to each of its ends.
func explained() map[string]facts {
	with := func(d client.Delivery, change func(*facts)) facts {
		sub := aSubscriber()
		sub.Name = "hook of acme"
		f := facts{delivery: d, subscriber: &sub, event: &client.StoredEvent{ID: "evt_1", Type: "shipment.delivered", ShipmentID: "shp_1"}}
		if change != nil {
			change(&f)
		}
		return f
	}
	ended := func(state client.State) client.Delivery {
		d := aDelivery(state)
		d.EndedAt = before(15 * time.Second)
		return d
	}
	drawn := func() client.Delivery { // due when the draw says
		d := aDelivery(client.Scheduled)
		last := d.Evidence[1]
		d.NextAttemptAt = last.StartedAt.Add(time.Duration(last.Duration) + delivery.Backoff(backoffOf(policy()), d.ID, 2))
		return d
	}
	return map[string]facts{
		"first": with(client.Delivery{ID: "dlv_1", EventID: "evt_1", SubscriberID: "sub_1", State: client.Scheduled, Lane: "fresh", AcceptedAt: before(2 * time.Second), NextAttemptAt: before(2 * time.Second), ExpiresAt: noon.Add(time.Hour)}, nil),
		"drawn": with(drawn(), nil),
		"moved": with(drawn(), func(f *facts) { f.delivery.NextAttemptAt = noon.Add(time.Hour) }),
		"retry-after": with(drawn(), func(f *facts) {
			last := &f.delivery.Evidence[1]
			last.RetryAfter, last.Status = seconds(120), 429
			f.delivery.NextAttemptAt = last.StartedAt.Add(time.Duration(last.Duration) + 2*time.Minute)
			f.subscriber.Status.Holds = []client.Hold{{Reason: client.Throttled, Until: f.delivery.NextAttemptAt, Note: "Its endpoint asked to be left alone."}}
			f.subscriber.Status.OnHoldSince = before(20 * time.Second)
		}),
		"breaker": with(drawn(), func(f *facts) {
			f.delivery.NextAttemptAt = before(time.Second)
			f.subscriber.Status.Holds = []client.Hold{{Reason: client.Breaker, Probe: "dlv_1", Note: "One delivery is out as a probe."}, {Reason: client.Paused, Note: "Somebody paused it."}}
		}),
		"leased":         with(aDelivery(client.Leased), func(f *facts) { f.delivery.Attempts, f.delivery.LeaseLosses = 3, 1 }),
		"leased-sending": with(aDelivery(client.Leased), func(f *facts) { f.delivery.Attempts, f.delivery.LastAttemptAt = 3, before(4*time.Second) }),
		"leased-late": with(aDelivery(client.Leased), func(f *facts) {
			f.delivery.Attempts, f.delivery.LeaseLosses, f.delivery.LastAttemptAt = 3, delivery.MaxLeaseLosses, before(26*time.Second)
		}),
		"due-unseen": with(drawn(), func(f *facts) {
			f.subscriber, f.unseen, f.role = nil, unseenByKey, client.RoleProducer
		}),
		"moved-unseen": with(drawn(), func(f *facts) {
			f.subscriber, f.unseen, f.role = nil, unseenByKey, client.RoleProducer
			f.delivery.NextAttemptAt = noon.Add(time.Hour)
		}),
		"due-unread":  with(drawn(), func(f *facts) { f.subscriber.Status = nil }),
		"due-deleted": with(drawn(), func(f *facts) { f.subscriber, f.unseen = nil, "has been deleted" }),
		"dead-unseen": with(ended(client.Dead), func(f *facts) {
			f.subscriber, f.unseen, f.untold, f.role = nil, unseenByKey, true, client.RoleProducer
		}),
		"leased-unseen": with(aDelivery(client.Leased), func(f *facts) { f.subscriber, f.unseen = nil, "may not be seen with your key" }),
		"delivered": with(ended(client.Delivered), func(f *facts) {
			f.delivery.Attempts, f.delivery.LastOutcome, f.delivery.LastStatus = 3, "delivered", 200
		}),
		"cancelled": with(ended(client.Cancelled), nil),
		"cancelled-while-out": with(ended(client.Cancelled), func(f *facts) {
			f.delivery.Attempts, f.delivery.LastAttemptAt = 3, before(16*time.Second)
		}),
		"exhausted": with(ended(client.Dead), func(f *facts) { f.reason = "exhausted" }),
		"expired": with(ended(client.Dead), func(f *facts) {
			f.reason = "expired"
			f.delivery.Attempts, f.delivery.Evidence, f.delivery.LastOutcome, f.delivery.LastStatus = 0, nil, "", 0
		}),
		"refused":             with(ended(client.Dead), func(f *facts) { f.reason, f.delivery.LastStatus = "http_422", 422 }),
		"refused-by-endpoint": with(ended(client.Dead), func(f *facts) { f.reason, f.delivery.LastStatus = "http_401", 401 }),
		"retry-after-in-vain": with(drawn(), func(f *facts) {
			last := &f.delivery.Evidence[1]
			last.RetryAfter, last.Status = seconds(3600), 429
			last.Error = "answered 429 Too Many Requests; its Retry-After asked for 2h0m0s and gets 1h0m0s (retry_after_cap)"
		}),
		"kept-few": with(ended(client.Dead), func(f *facts) {
			f.delivery.Attempts, f.delivery.RedriveGeneration, f.event = 15, 1, nil
			f.subscriber, f.unseen = nil, "has been deleted"
		}),
	}
}

func TestExplainInSentences(t *testing.T) {
	t.Parallel()
	for name, f := range explained() {
		text := clean(strings.Join(f.sentences(noon), "\n")) + "\n"
		golden(t, "explain-"+name+".txt", text)
		if strings.Contains(text, "token=") || strings.Contains(text, "%!") {
			t.Errorf("%s says what it must not:\n%s", name, text)
		}
	}
}

// Each outcome that there is has words of its own.
func TestEveryOutcomeHasWords(t *testing.T) {
	t.Parallel()
	for o := range delivery.Facts {
		if o == delivery.Expired || o == delivery.Exhausted || o == delivery.HeldFull {
			continue // never of an attempt
		}
		status := 0
		if strings.HasPrefix(string(o), "http_") {
			status = 499
		}
		if text := meaning(string(o), status); strings.Contains(text, "_") {
			t.Errorf("%s: %s", o, text)
		}
	}
}

func TestSpan(t *testing.T) {
	t.Parallel()
	for d, want := range map[time.Duration]string{
		0: "0ms", time.Microsecond: "under 1ms", 999 * time.Millisecond: "999ms", time.Second: "1s", 1500 * time.Millisecond: "1.5s",
		9999 * time.Millisecond: "10s", 59 * time.Second: "59s", time.Minute: "1m", 90 * time.Second: "1m30s", time.Hour: "1h",
		90 * time.Minute: "1h30m", 24 * time.Hour: "1d", 50 * time.Hour: "2d2h",
	} {
		if got := span(d); got != want {
			t.Errorf("%d: %s, want %s", d, got, want)
		}
	}
}

// What comes from the network does nothing to the terminal.
func TestClean(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]string{
		"plain\ntext": "plain\ntext", "a\tb": "a b", "\x1b]0;title\x07": "<001b>]0;title<0007>",
		"\u202egnp.exe": "<202e>gnp.exe", "\u009b31m": "<009b>31m", "\r\x00": "<000d><0000>", "\xff": "\uFFFD", "Zürich →": "Zürich →",
	} {
		if got := clean(in); got != want {
			t.Errorf("%q: %q, want %q", in, got, want)
		}
	}
	if got := oneLine("a\n\n  b\tc", 4); got != "a b…" {
		t.Errorf("%q", got)
	}
}

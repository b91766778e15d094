package cli

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/fanout/fanout/client"
)

// A subscriber's life, and what becomes of an event that its endpoint refuses, as a
// person types it.
func TestSubscribersEventsAndDeliveries(t *testing.T) {
	t.Parallel()
	s := newService(t)

	made := s.subscriber(http.StatusUnprocessableEntity, "--name=shop", "--types=shipment.*", "--attribute=carrier=dhl|ups", "--policy=max_attempts=3,breaker_failures=1,attempt_timeout=2s", "--classify=404=retry")
	if made.Secret == "" || made.Policy.MaxAttempts != 3 || made.Policy.Classify["404"] != "retry" || len(made.Filter.Attributes["carrier"]) != 2 {
		t.Fatalf("%+v", made)
	}
	if r := s.ok("subscribers", "create", "--url="+strings.Replace(made.URL, "***", "token=topsecret", 1), "--types=none"); !strings.Contains(r.out, "whsec_") || !strings.Contains(r.err, "shown this once") || strings.Contains(r.out+r.err, "topsecret") {
		t.Errorf("create: %s%s", r.out, r.err)
	}
	if r := s.ok("subscribers", "ls", "--limit=1"); strings.Count(r.out, "sub_") != 1 || !strings.Contains(r.err, "There are more") {
		t.Errorf("ls: %s%s", r.out, r.err)
	}
	if r := s.ok("subscribers", "ls"); strings.Count(r.out, "sub_") != 2 || r.err != "" || strings.Contains(r.out, "topsecret") {
		t.Errorf("ls: %s%s", r.out, r.err)
	}
	for _, c := range []struct{ args, says string }{
		{"show " + made.ID, "shipment.*"},
		{"pause " + made.ID + " --reason=lunch", "on hold: paused"},
		{"resume " + made.ID, "sending"},
		{"patch " + made.ID + " --name=new", "new"},
		{"schedule " + made.ID, "exhausted"},
		{"stats " + made.ID, "dead letters"},
		{"test " + made.ID, "dlv_"},
		{"rotate-secret " + made.ID + " --overlap=1h", "whsec_"},
	} {
		if r := s.ok(append([]string{"subscribers"}, strings.Fields(c.args)...)...); !strings.Contains(r.out, c.says) || strings.Contains(r.out, made.Secret) {
			t.Errorf("%s: %s%s", c.args, r.out, r.err)
		}
	}
	if r := run(t, "", s.args("subscribers", "patch", made.ID, "--name=other", "--if-version=1")...); r.code != exitFailed {
		t.Errorf("a patch of an old version: exit code %d, %s", r.code, r.err)
	}

	in := `{"id":"evt_1","type":"shipment.delivered","shipment_id":"shp_1","occurred_at":"2026-03-01T09:30:00.500+00:00","attributes":{"carrier":"dhl"},"data":{"n":1.50}}`
	for _, want := range []string{"yes", "accepted before"} {
		if r := run(t, in, s.args("events", "post", "--file=-")...); r.code != exitOK || !strings.Contains(r.out, want) || !strings.Contains(r.err, "fanout events show evt_1") {
			t.Errorf("post: %+v", r)
		}
	}
	if raw, err := s.PostRaw(t.Context(), json.RawMessage(in)); err != nil || !raw.Duplicate { // byte for byte
		t.Errorf("posted by other means: %+v, %v", raw, err)
	}
	if r := s.ok("events", "post", "--id=evt_2", "--type=other.thing", "--shipment=shp_1"); !strings.Contains(r.err, "goes to nobody") {
		t.Errorf("an event for nobody: %s%s", r.out, r.err)
	}
	var dead struct{ Data []client.DeadLetter }
	until(t, "both are dead", func() bool {
		s.read(&dead, "dead", "ls", "--subscriber="+made.ID)
		return len(dead.Data) == 2
	})
	id := dead.Data[0].Delivery.ID
	for _, c := range []struct{ args, says string }{
		{"events show evt_1", "1 planned, 1 dead"},
		{"dead ls", "http_422"},
		{"dead show " + id, "no <001b>[31mroom"},
		{"deliveries show " + id, "http_422"},
		{"deliveries ls --event=evt_1", "dead"},
		{"deliveries ls --subscriber=" + made.ID + " --state=dead", id},
		{"explain " + id, "the endpoint answered 422, which no other attempt would change"},
		{"audit --action=pauseSubscriber", "lunch"},
	} {
		if r := s.ok(strings.Fields(c.args)...); !strings.Contains(r.out, c.says) || strings.ContainsRune(r.out, 0x1b) {
			t.Errorf("%s: %s%s", c.args, r.out, r.err)
		}
	}
	var said struct {
		Explanation []string
		Reason      string
		Delivery    client.Delivery
		Subscriber  client.Subscriber
		Event       client.StoredEvent
	}
	s.read(&said, "explain", id)
	if len(said.Explanation) < 5 || said.Reason != "http_422" || said.Delivery.ID != id || said.Subscriber.ID != made.ID || said.Event.ID == "" {
		t.Errorf("explain -o json: %+v", said)
	}
	if r := run(t, "", s.args("deliveries", "retry", id)...); r.code != exitFailed || !strings.Contains(r.err, "not_scheduled") {
		t.Errorf("a retry of a dead one: %+v", r)
	}
	if r := s.ok("subscribers", "rm", made.ID); !strings.Contains(r.out, made.ID) {
		t.Errorf("rm: %s%s", r.out, r.err)
	}
	if r := run(t, "", s.args("subscribers", "show", made.ID)...); r.code != exitFailed || !strings.Contains(r.err, "request req_") {
		t.Errorf("after its end: %+v", r)
	}
	if r := s.ok("explain", id); !strings.Contains(r.out, "has been deleted") {
		t.Errorf("explain: %s%s", r.out, r.err)
	}
}

// One that was never sent has nothing to show of its attempts, and says so in a line.
func TestDeadWithoutAnAttempt(t *testing.T) {
	t.Parallel()
	s := newService(t)
	made := s.subscriber(http.StatusOK, "--types=*", "--policy=max_held=1", "--paused")
	s.ok("trigger", "shipment.created", "--count=2")
	var dead struct{ Data []client.DeadLetter }
	until(t, "the second is dead", func() bool {
		s.read(&dead, "dead", "ls", "--subscriber="+made.ID, "--died-of=held_full")
		return len(dead.Data) == 1
	})
	r := s.ok("dead", "show", dead.Data[0].Delivery.ID)
	for part := range strings.SplitSeq(r.out, "\n\n") {
		if lines := strings.Split(strings.TrimSpace(part), "\n"); len(lines) < 2 && strings.HasSuffix(lines[0], ":") {
			t.Errorf("an empty section: %q", part)
		}
	}
	if !strings.Contains(r.out, "It was never sent: there are no attempts") || strings.Contains(r.out, "what held for") || !strings.Contains(r.out, "payload (") {
		t.Error(r.out)
	}
}

// A delivery that waits can be made due and given up.
func TestRetryAndCancel(t *testing.T) {
	t.Parallel()
	s := newService(t)
	made := s.subscriber(http.StatusServiceUnavailable, "--types=*", "--policy=backoff_base=1h,backoff_cap=1h")
	s.ok("trigger", "shipment.created", "--id=evt_1")
	var waiting struct{ Data []client.Delivery }
	until(t, "it waits for its second attempt", func() bool {
		s.read(&waiting, "deliveries", "ls", "--event=evt_1")
		return len(waiting.Data) == 1 && waiting.Data[0].State == client.Scheduled && waiting.Data[0].Attempts == 1
	})
	id := waiting.Data[0].ID
	if r := s.ok("explain", id); !strings.Contains(r.out, "drawn from a window of 0s to 1h, and the draw was") || !strings.Contains(r.out, "given up after attempt 15 (14 attempts left)") {
		t.Errorf("explain: %s%s", r.out, r.err)
	}
	s.ok("subscribers", "pause", made.ID)
	s.ok("deliveries", "retry", id)
	if r := s.ok("explain", id); !strings.Contains(r.out, "it would go now, but for the hold") || !strings.Contains(r.out, "it was moved since") || !strings.Contains(r.out, "fanout subscribers resume "+made.ID) {
		t.Errorf("explain: %s%s", r.out, r.err)
	}
	if r := s.ok("deliveries", "cancel", id, "--reason=a test"); !strings.Contains(r.out, "cancelled") {
		t.Errorf("cancel: %s%s", r.out, r.err)
	}
	if r := s.ok("audit", "--target="+id); !strings.Contains(r.out, "a test") {
		t.Errorf("audit: %s%s", r.out, r.err)
	}
}

// The server here takes who shows no key for an admin.
func TestKeys(t *testing.T) {
	t.Parallel()
	s := newService(t)
	if r := s.ok("keys", "self"); !strings.Contains(r.out, "local") {
		t.Errorf("self: %s", r.out)
	}
	var admin, viewer client.CreatedKey
	s.read(&admin, "keys", "create", "--name=me", "--role=admin")
	s.key = file(t, admin.Token+"\n")
	until(t, "the key counts", func() bool {
		r := run(t, "", s.args("keys", "self")...)
		return r.code == exitOK && strings.Contains(r.out, admin.ID)
	})
	s.read(&viewer, "keys", "create", "--name=look", "--role=viewer", "--expires=1h")
	if viewer.ExpiresAt.IsZero() || viewer.Token == "" {
		t.Errorf("%+v", viewer)
	}
	if r := s.ok("keys", "ls"); strings.Contains(r.out, viewer.Token) || strings.Count(r.out, "key_") < 2 {
		t.Errorf("ls: %s", r.out)
	}
	looks := &service{t: t, api: s.api, key: file(t, viewer.Token)}
	if r := looks.ok("keys", "self"); !strings.Contains(r.out, "viewer") {
		t.Errorf("self: %s", r.out)
	}
	if r := run(t, "", looks.args("trigger", "shipment.created")...); r.code != exitFailed || !strings.Contains(r.err, "forbidden") {
		t.Errorf("a viewer posts: %+v", r)
	}
	if r := s.ok("keys", "revoke", viewer.ID, "--reason=done"); !strings.Contains(r.out, "revoked") {
		t.Errorf("revoke: %s%s", r.out, r.err)
	}
	if r := run(t, "", looks.args("keys", "self")...); r.code != exitFailed || strings.Contains(r.err+r.out, viewer.Token) {
		t.Errorf("a revoked key: %+v", r)
	}
	if r := s.ok("keys", "ls"); !strings.Contains(r.out, "revoked") {
		t.Errorf("ls: %s", r.out)
	}
}

// Lines that are no events are told by their number, and all others are posted.
func TestBatchWithBadLines(t *testing.T) {
	t.Parallel()
	s := newService(t)
	var b strings.Builder
	line := func(id string) string {
		return fmt.Sprintf(`{"id":%q,"type":"shipment.created","shipment_id":"shp_1","occurred_at":"2026-03-01T09:30:00Z","data":{}}`, id)
	}
	const n = 2500
	for i := range n {
		fmt.Fprintln(&b, line(fmt.Sprintf("evt_%d", i)))
	}
	if r := run(t, b.String(), s.args("events", "batch")...); r.code != exitOK || r.out != "accepted 2500, accepted before 0, refused 0; 0 deliveries\n" {
		t.Fatalf("%+v", r)
	}
	bad := strings.Join([]string{
		line("evt_1"), // accepted before
		"", "not json",
		`{"id":"evt_x","type":"shipment.created","shipment":"shp_1"}`,
		`{"id":"evt_y","type":"shipment.created","shipment_id":"shp_1","data":{}}`,
		`{"id":"evt_z","type":"","shipment_id":"shp_1","occurred_at":"2026-03-01T09:30:00Z","data":{}}`,
		`{"type":"shipment.created","shipment_id":"shp_1","occurred_at":"2026-03-01T09:30:00Z","data":{}}`,
		`{"data":"` + strings.Repeat("x", maxLine) + `"}`,
		line("evt_last"), // without a line break
	}, "\n")
	r := run(t, bad, s.args("events", "batch")...)
	if r.code != exitFailed || !strings.Contains(r.out, "accepted 2, accepted before 1, refused 5; 0 deliveries\n") || !strings.Contains(r.err, "5 of 8 events were refused, and nothing is stored of them; all others are accepted.") || !strings.Contains(r.err, "1 event had no id and was accepted: to post it again would be another event.") {
		t.Errorf("exit code %d\n%s%s", r.code, r.out, r.err)
	}
	for _, want := range []string{
		"line 3 was not sent: it is not JSON: invalid character 'o'", "at column 2",
		"line 4 evt_x refused (400): A field cannot be used: ", "/shipment ", "line 5 evt_y refused (422)", "/occurred_at",
		"line 6 evt_z refused (422)", "/type", "line 8 was not sent: it is longer than 1 MiB",
	} {
		if !strings.Contains(r.out, want) {
			t.Errorf("it does not say %q:\n%s", want, r.out)
		}
	}
	var sum struct {
		Accepted, Duplicates, Refused int
		Results                       []item
	}
	r = run(t, bad, s.args("events", "batch", "-o", "json")...)
	if err := strictRead(r.out, &sum); err != nil || sum.Refused != 5 || len(sum.Results) != 8 || sum.Duplicates != 2 || r.code != exitFailed {
		t.Fatalf("%v, %+v, exit code %d", err, sum, r.code)
	}
	for i, line := range []int{1, 3, 4, 5, 6, 7, 8, 9} {
		if one := sum.Results[i]; one.Line != line || one.Index != i || (one.Problem == nil) != (one.Duplicate != nil) {
			t.Errorf("result %d: %+v", i, one)
		}
	}
	if p := sum.Results[4].Problem; p.Errors[0].Pointer != "/events/4/type" || p.Code != "invalid_request" {
		t.Errorf("%+v", p)
	}
	if r := run(t, bad, "events", "batch", "--timeout=1s", "--api=http://127.0.0.1:1"); r.code != exitUnavailable || !strings.Contains(r.err, "Stopped behind line 0 of stdin") {
		t.Errorf("nobody there: %+v", r)
	}
	if r := run(t, "\n", s.args("events", "batch", "-o", "json")...); r.code != exitOK || strictRead(r.out, &sum) != nil {
		t.Errorf("nothing: %+v", r)
	}
	one := run(t, "{\n", s.args("events", "batch")...)
	if !strings.Contains(one.err, "1 of 1 event was refused, and nothing is stored of it. The whole can be posted again") {
		t.Errorf("one alone: %+v", one)
	}
}

// An event without an id that is refused is stored nowhere: the id that was made for it
// is not shown, and nothing speaks against posting the file again.
func TestBatchRefusesAnEventWithoutAnID(t *testing.T) {
	t.Parallel()
	s := newService(t)
	good := `{"id":"evt_1","type":"a.b","shipment_id":"s","occurred_at":"2026-03-01T09:30:00Z","data":{}}`
	in := good + "\n" + `{"type":"","shipment_id":"s","occurred_at":"2026-03-01T09:30:00Z","data":{}}` + "\n7"
	r := run(t, in, s.args("events", "batch")...)
	if r.code != exitFailed || strings.Contains(r.err, "no id") || !strings.Contains(r.err, "The whole can be posted again") {
		t.Errorf("%+v", r)
	}
	if strings.Contains(r.out, "evt_") || !strings.Contains(r.out, "line 2 refused (422): ") || !strings.Contains(r.out, "line 3 refused (400): A field cannot be used: the event is ") {
		t.Error(r.out)
	}
	if r := run(t, in, s.args("events", "batch", "-o", "json")...); strings.Count(r.out, `"id"`) != 1 {
		t.Error(r.out)
	}
	in = strings.Replace(good, `"id":"evt_1",`, "", 1) + "\nno"
	r = run(t, in, s.args("events", "batch")...)
	if !strings.Contains(r.err, "to post it again would be another event") || !strings.Contains(r.err, "What has an id can be posted again") || strings.Contains(r.err, "The whole") {
		t.Errorf("one that was accepted: %+v", r)
	}
}

// The same event by other means is the same: each line goes as it was written, and what
// makes the server refuse a whole request spoils it for no other line.
func TestEventsArePostedAsTheyAreWritten(t *testing.T) {
	t.Parallel()
	s := newService(t)
	odd := func(id string) string {
		return fmt.Sprintf(`{ "occurred_at" : "2026-03-01T09:30:00.500+00:00", "id":%q, "type":"shipment.created","shipment_id":"sh\u0070_1","data":{"z":1.0,"a":"\u003c"} }`, id)
	}
	deep := `{"id":"evt_deep","type":"a.b","shipment_id":"s","occurred_at":"2026-03-01T09:30:00Z","data":` + strings.Repeat("[", 9990) + strings.Repeat("]", 9990) + "}"
	r := run(t, odd("evt_1")+"\n"+deep+"\r\n"+odd("evt_2"), s.args("events", "batch")...)
	if r.code != exitFailed || !strings.Contains(r.out, "accepted 2, accepted before 0, refused 1") || !strings.Contains(r.out, "line 2 evt_deep refused (400)") {
		t.Errorf("%+v", r)
	}
	if r := run(t, odd("evt_3"), s.args("events", "post", "--file=-")...); r.code != exitOK {
		t.Errorf("%+v", r)
	}
	if r := run(t, odd("evt_3"), s.args("events", "post", "--file=-", "--id=evt_4")...); r.code != exitOK || !strings.Contains(r.out, "evt_4") {
		t.Errorf("with a flag: %+v", r)
	}
	if r := s.ok("events", "post", "--id=evt_5", "--type=a.b", "--shipment=s<1", "--occurred-at=2026-03-01T09:30:00.500+00:00"); !strings.Contains(r.out, "evt_5") {
		t.Errorf("by flags: %+v", r)
	}
	byFlags := `{"id":"evt_5","type":"a.b","shipment_id":"s<1","occurred_at":"2026-03-01T09:30:00.500+00:00","data":{}}`
	for _, body := range []string{odd("evt_1"), odd("evt_2"), odd("evt_3"), odd("evt_4"), byFlags} {
		if got, err := s.PostRaw(t.Context(), json.RawMessage(body)); err != nil || !got.Duplicate {
			t.Errorf("posted by other means: %+v, %v\n%s", got, err, body)
		}
	}
	for text, says := range map[string]string{
		"{\n\"id\": evt\n}": "stdin: it is not JSON: invalid character 'e' looking for beginning of value, at line 2, column 7; nothing was posted",
		"{} {}":             "it is more than one JSON value: a second begins at column 3",
		"[]":                "it is no JSON object",
		"":                  "it ends too early",
		"{\"a\":\"\xff\"}":  "it is not UTF-8",
	} {
		if r := run(t, text, s.args("events", "post", "--file=-")...); r.code != exitUsage || !strings.Contains(r.err, says) {
			t.Errorf("%q: %+v", text, r)
		}
	}
}

func TestTrigger(t *testing.T) {
	t.Parallel()
	s := newService(t)
	s.subscriber(http.StatusOK, "--types=shipment.*")
	r := s.ok("trigger", "shipment.delivered", "--count=3", "--rate=1000", "--attribute=carrier=test")
	if !strings.HasSuffix(r.out, "3 events, 3 deliveries\n") || strings.Count(r.out, "evt_") != 3 || !strings.Contains(r.err, "fanout events show evt_") {
		t.Errorf("%s%s", r.out, r.err)
	}
	same := []string{"trigger", "shipment.created", "--id=evt_mine", "--occurred-at=2026-03-01T09:30:00+01:00"}
	for _, says := range []string{"yes", "accepted before"} {
		if r := s.ok(same...); !strings.Contains(r.out, says) {
			t.Errorf("the same event: %+v", r)
		}
	}
	if r := run(t, "", s.args(same[:3]...)...); r.code != exitFailed || !strings.Contains(r.err, "Without --occurred-at the body has the time of now") {
		t.Errorf("the same id: %+v", r)
	}
	for _, posts := range []string{"trigger other.thing", "events post --type=other.thing --shipment=s"} {
		args := s.args(strings.Fields(posts)...)
		if r := run(t, "", args...); r.code != exitOK {
			t.Errorf("%s: %+v", posts, r)
		}
		if r := run(t, "", append(args, "--fail-if-none")...); r.code != exitFailed || !strings.Contains(r.err, "goes to nobody") || !strings.Contains(r.out, "evt_") {
			t.Errorf("%s for nobody: %+v", posts, r)
		}
		if r := run(t, "", append(args, "--fail-if-none", "-o", "json")...); r.code != exitFailed || strictRead(r.out, &struct{}{}) != nil {
			t.Errorf("%s for nobody: %+v", posts, r)
		}
	}
	s.ok("trigger", "shipment.created", "--fail-if-none")
	var one client.Receipt
	s.read(&one, "trigger", "shipment.invented", "--shipment=shp_mine", "--data="+file(t, `{"mine":true}`))
	var e client.StoredEvent
	s.read(&e, "events", "show", one.ID)
	if e.ShipmentID != "shp_mine" || e.Attributes["carrier"] == "" || e.Type != "shipment.invented" || one.Deliveries != 1 {
		t.Errorf("%+v", e)
	}
}

package docs_test

import (
	"context"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/fanout/fanout/internal/access"
	"github.com/fanout/fanout/internal/delivery"
	"github.com/fanout/fanout/internal/redrive"
	"github.com/fanout/fanout/internal/schedule"
	"github.com/fanout/fanout/test/redistest"
)

// documented is one row of a table of keys in redis.md.
type documented struct {
	pattern string // as written, such as "pend:<subscriber>"
	match   *regexp.Regexp
	kind    string // Redis type
	row     string // the whole row: fields of a hash are named in it
	expires string // no, yes, once final
}

// what a placeholder of a pattern stands for.
var placeholders = map[string]string{
	"P":          `\{fo:\d+\.\d+\}:`,
	"E":          `\{fo:e\d+\.\d+\}:`,
	"delivery":   `dlv_[0-9a-z]{24}`,
	"subscriber": `sub_[0-9A-Za-z]+`,
	"event":      `evt_[0-9A-Za-z]+`,
	"cohort":     `rdv_[0-9A-Za-z]+`,
	"lane":       `[frd]`,
	"kind":       `[elh]`,
	"class":      `[a-z][a-z0-9_]*`,
	"worker":     `[^ =]+`,
	"hour":       `\d+`,
	"key":        `key_[0-9A-Z]{26}`,
	"session":    `[0-9a-f]{64}`,
}

var (
	keyRow      = regexp.MustCompile("(?m)^\\| `([^`]+)` \\| (string|hash|list|set|zset|stream) \\|.*\\| (no|yes|once final) \\|[^|]*\\|$")
	placeholder = regexp.MustCompile(`<(\w+)>`)
	keyField    = regexp.MustCompile("^" + placeholders["key"] + "$")
	isNumber    = regexp.MustCompile(`^\d+$`)
	cohortField = regexp.MustCompile("^" + placeholders["cohort"] + "$")
)

func documentedKeys(t *testing.T) []documented {
	t.Helper()
	var rows []documented
	for _, m := range keyRow.FindAllStringSubmatch(read(t, "redis.md"), -1) {
		expr := placeholder.ReplaceAllStringFunc(regexp.QuoteMeta(m[1]), func(s string) string {
			re, ok := placeholders[s[1:len(s)-1]]
			if !ok {
				t.Fatalf("redis.md: %s has a placeholder that the test does not know", m[1])
			}
			return re
		})
		rows = append(rows, documented{
			pattern: m[1], match: regexp.MustCompile("^" + expr + "$"), kind: m[2], row: m[0], expires: m[3],
		})
	}
	if len(rows) < 20 {
		t.Fatalf("redis.md: only %d rows of keys can be read; has the form of the tables changed?", len(rows))
	}
	return rows
}

// Every key that the engine makes is in redis.md, with its type, its fields and
// whether it expires; and every key that redis.md names is made.
func TestEveryKeyIsDocumented(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.everyKindOfKey()
	w.keysAndAudit()
	w.redrives()

	rows := documentedKeys(t)
	seen := map[string]bool{}
	for _, key := range w.keys() {
		i := slices.IndexFunc(rows, func(d documented) bool { return d.match.MatchString(key) })
		if i < 0 {
			t.Errorf("%s is in Redis and not in redis.md", key)
			continue
		}
		seen[rows[i].pattern] = true
		w.checkKey(key, rows[i])
	}
	for _, d := range rows {
		if !seen[d.pattern] {
			t.Errorf("redis.md documents %s, and no such key came to be", d.pattern)
		}
	}
	doc := read(t, "redis.md")
	for _, key := range w.keys() {
		if prefix, ok := strings.CutSuffix(key, "test-clock"); ok && !strings.Contains(doc, "`"+prefix+"`") {
			t.Errorf("redis.md does not name the prefix %s among those for 4 partitions", prefix)
		}
	}
}

// world is an engine on a redis-server, in the hands of one test.
type world struct {
	*testing.T
	*schedule.Engine
	ctx context.Context
	// limited has the rights of the ACL rule, rdb has all.
	limited *redis.Client
	rdb     *redis.Client
	offset  time.Duration
	seq     int64
}

// newWorld opens an engine as the ACL user that redis.md proposes.
func newWorld(t *testing.T) *world {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	t.Cleanup(cancel)
	server := redistest.Server(t)
	w := &world{T: t, ctx: ctx, rdb: server.Client()}
	rule := regexp.MustCompile(`(?m)^user fanout on (.+)$`).FindStringSubmatch(read(t, "redis.md"))
	if rule == nil {
		t.Fatal("redis.md: no ACL rule for a user fanout")
	}
	args := []any{"ACL", "SETUSER", "fanout", "on"}
	for word := range strings.FieldsSeq(rule[1]) {
		args = append(args, word)
	}
	w.ok(w.rdb.Do(ctx, args...).Err())
	secret := regexp.MustCompile(`>(\S+)`).FindStringSubmatch(rule[1])[1]
	limited := redis.NewClient(&redis.Options{Addr: server.Addr(), Username: "fanout", Password: secret, MaxRetries: -1})
	t.Cleanup(func() { _ = limited.Close() })

	var err error
	w.limited = limited
	w.Engine, err = schedule.Open(ctx, limited, schedule.Options{Partitions: 4, TestClock: true})
	w.ok(err)
	w.advance(0)
	return w
}

func (w *world) ok(err error) {
	w.Helper()
	if err != nil {
		w.Fatal(err)
	}
}

// advance moves the clock of the scripts.
func (w *world) advance(d time.Duration) {
	w.Helper()
	w.offset += d
	w.ok(w.SetTestClock(w.ctx, w.offset))
}

func (w *world) subscribe(id string, terms schedule.Terms) {
	w.Helper()
	terms.Class, terms.LeaseTime = "standard", 25*time.Second
	_, err := w.PutConfig(w.ctx, id, 0, []byte("{}"), terms, schedule.Edited)
	w.ok(err)
}

// accept stores an event; enqueue makes its deliveries and closes it.
func (w *world) accept(event string, subs ...string) (schedule.Accepted, []schedule.Target) {
	w.Helper()
	var targets []schedule.Target
	for _, s := range subs {
		targets = append(targets, schedule.Target{SubscriberID: s, MaxAge: 24 * time.Hour})
	}
	a, err := w.Accept(w.ctx, schedule.NewEvent{
		ID: event, BodyHash: "h", Meta: []byte("{}"), Body: []byte(`{"data":1}`), Targets: targets,
	})
	w.ok(err)
	return a, targets
}

func (w *world) post(event string, subs ...string) {
	w.Helper()
	a, targets := w.accept(event, subs...)
	for _, t := range targets {
		p := w.PartitionOf(t.SubscriberID)
		w.ok(w.Enqueue(w.ctx, event, a.At, w.ExpandBy(a.At), p, []schedule.Target{t}))
		_, err := w.Strike(w.ctx, event, p)
		w.ok(err)
	}
}

// lease takes one delivery of the subscriber's partition.
func (w *world) lease(sub string) schedule.Leased {
	w.Helper()
	w.seq++
	replies, err := w.Lease(w.ctx, []schedule.LeaseRequest{{
		Partition: w.PartitionOf(sub), Worker: "host-1-abc", Seq: w.seq,
		Rooms: schedule.Rooms{Total: 1, Fresh: 1, Retry: 1, Redrive: 1, Slow: 1},
	}})
	w.ok(err)
	if len(replies[0].Leased) != 1 {
		w.Fatalf("leased %d deliveries for %s, want 1", len(replies[0].Leased), sub)
	}
	return replies[0].Leased[0]
}

func (w *world) settle(l schedule.Leased, v schedule.Verdict) schedule.SettleResult {
	w.Helper()
	v.ID, v.Fence = l.ID, l.Fence()
	settled, err := w.Settle(w.ctx, w.PartitionOf(l.SubscriberID), []schedule.Verdict{v})
	w.ok(err)
	return settled.Results[0]
}

func (w *world) now() time.Time {
	w.Helper()
	s, err := w.Sample(w.ctx, nil)
	w.ok(err)
	return s.Now
}

func (w *world) ledger() schedule.Ledger {
	w.Helper()
	s, err := w.Sample(w.ctx, nil)
	w.ok(err)
	return s.Ledger
}

// The three verdicts that end a lease.
func succeeded() schedule.Verdict {
	return schedule.Verdict{Outcome: delivery.OK, Status: 200, Decision: delivery.Decision{Next: delivery.Delivered}}
}

func (w *world) failed() schedule.Verdict {
	return schedule.Verdict{
		Outcome: delivery.HTTP5xx, Status: 503, Attempt: []byte(`{"attempt":1}`),
		Decision: delivery.Decision{Next: delivery.Scheduled, DueAt: w.now().Add(time.Minute)},
	}
}

func died() schedule.Verdict {
	return schedule.Verdict{
		Outcome: delivery.HTTP422, Status: 422, Attempt: []byte(`{"attempt":1}`), Body: &schedule.Body{Bytes: []byte("{}")},
		Decision: delivery.Decision{Next: delivery.Dead, Reason: delivery.HTTP422},
	}
}

// everyKindOfKey brings about each kind of key that the engine knows. Each
// subscriber has a partition of its own turn: leases are asked for one at a time.
func (w *world) everyKindOfKey() {
	w.Helper()
	// Accepted and never expanded: set aside as late, and one that is still open.
	w.subscribe("sub_gone", schedule.Terms{MaxInFlight: 1})
	w.accept("evt_late", "sub_gone")
	w.advance(2 * time.Hour)
	_, err := w.ClaimOpen(w.ctx, w.PartitionOf("evt_late"), 10, time.Minute)
	w.ok(err)
	w.accept("evt_open", "sub_gone")
	w.ok(w.Tombstone(w.ctx, "sub_gone", ""))

	// One that failed for good, with its payload pinned, and one that is due later.
	w.subscribe("sub_fails", schedule.Terms{MaxInFlight: 10})
	w.post("evt_1", "sub_fails")
	w.settle(w.lease("sub_fails"), died())
	w.post("evt_2", "sub_fails")
	w.settle(w.lease("sub_fails"), w.failed())
	w.post("evt_3", "sub_fails")
	w.settle(w.lease("sub_fails"), succeeded())

	// Two that failed for good, one of which a cohort has released.
	w.subscribe("sub_again", schedule.Terms{MaxInFlight: 10})
	for _, event := range []string{"evt_9", "evt_10"} {
		w.post(event, "sub_again")
		w.settle(w.lease("sub_again"), died())
	}
	again := []string{delivery.NewID("evt_9", "sub_again"), delivery.NewID("evt_10", "sub_again")}
	_, err = w.Claim(w.ctx, "rdv_1", again)
	w.ok(err)
	_, err = w.Redrive(w.ctx, "rdv_1", 1, time.Hour, again[:1])
	w.ok(err)

	w.post("evt_11", "sub_again")
	w.settle(w.lease("sub_again"), died())
	_, err = w.Discard(w.ctx, []string{delivery.NewID("evt_11", "sub_again")})
	w.ok(err)
	w.ok(w.Report(w.ctx, schedule.WorkerReport{Worker: "worker-1"}))
	for _, ring := range []string{"fine", "coarse"} {
		w.ok(w.KeepPoint(w.ctx, schedule.Ring{Name: ring, Every: time.Minute, Places: 2}, w.now(), []byte("{}")))
	}

	// One whose subscriber is known to answer at once, and so is not among the slow.
	w.subscribe("sub_fast", schedule.Terms{MaxInFlight: 1})
	w.post("evt_7", "sub_fast")
	w.settle(w.lease("sub_fast"), succeeded())
	w.post("evt_8", "sub_fast")

	// One that waits for its subscriber's cap beside one that is leased.
	w.subscribe("sub_full", schedule.Terms{MaxInFlight: 1})
	w.post("evt_4", "sub_full")
	w.post("evt_5", "sub_full")
	w.lease("sub_full")

	// One that is held, and one that is ready.
	w.subscribe("sub_held", schedule.Terms{MaxInFlight: 1, Paused: true})
	w.subscribe("sub_ready", schedule.Terms{MaxInFlight: 1})
	w.post("evt_6", "sub_held", "sub_ready")
}

// keysAndAudit creates a key, uses it, revokes it, and writes that down.
func (w *world) keysAndAudit() {
	w.Helper()
	store, err := access.Open(w.limited, access.Options{})
	w.ok(err)
	key, token, err := store.Keys.Create(w.ctx, access.NewKey{Name: "a test", Role: access.Viewer}, "bootstrap")
	w.ok(err)
	_, err = store.Gate.Authenticate(w.ctx, token)
	w.ok(err)
	_, err = store.Sessions.Begin(w.ctx, token, func(access.Role) bool { return true })
	w.ok(err)
	_, err = store.Keys.Revoke(w.ctx, key.ID)
	w.ok(err)
	w.ok(store.Audit.Append(w.ctx, access.Entry{Actor: access.Bootstrap, Action: "revokeKey", Target: key.ID}))
	_, _, err = store.Audit.List(w.ctx, access.Filter{}, "", 1)
	w.ok(err)
	store.Close()
}

// redrives makes a cohort that rests, and a runner that sees to it.
func (w *world) redrives() {
	w.Helper()
	s := redrive.New(w.limited, w.Engine, redrive.Options{})
	c, err := s.Create(w.ctx, redrive.Order{Reason: "a test of keys"}, "key_1")
	w.ok(err)
	_, err = s.Pause(w.ctx, c.ID, "key_1", "so that it rests")
	w.ok(err)
	ctx, stop := context.WithCancel(w.ctx)
	ended := make(chan error, 1)
	go func() { ended <- s.Run(ctx) }()
	w.Cleanup(func() {
		stop()
		if err := <-ended; err != nil {
			w.Error(err)
		}
	})
	for w.rdb.Exists(w.ctx, "{fo:redrive}:runner").Val() == 0 {
		w.ok(w.ctx.Err())
	}
}

func (w *world) keys() []string {
	w.Helper()
	keys, err := w.rdb.Keys(w.ctx, "*").Result()
	w.ok(err)
	slices.Sort(keys)
	return keys
}

// checkKey holds one key against its row.
func (w *world) checkKey(key string, d documented) {
	w.Helper()
	kind, err := w.rdb.Type(w.ctx, key).Result()
	w.ok(err)
	if kind != d.kind {
		w.Errorf("%s is a %s, redis.md says %s", key, kind, d.kind)
	}
	ttl, err := w.rdb.PTTL(w.ctx, key).Result()
	w.ok(err)
	if lives := ttl > 0; (d.expires == "yes" && !lives) || (d.expires == "no" && lives) {
		w.Errorf("%s has a PTTL of %v, redis.md says of expiry: %s", key, ttl, d.expires)
	}
	if kind == "hash" {
		fields, err := w.rdb.HKeys(w.ctx, key).Result()
		w.ok(err)
		ofKeys := strings.Contains(d.row, "`<key>`")        // a field for each key
		ofCohorts := strings.Contains(d.row, "`<cohort>`:") // and for each cohort
		numbered := strings.Contains(d.row, "`<number>`")   // or each of so many places
		for _, f := range fields {
			if ofKeys && keyField.MatchString(f) || ofCohorts && cohortField.MatchString(f) || numbered && isNumber.MatchString(f) {
				continue
			}
			_, noID := delivery.IDHash16(f) // a field for each delivery
			if !strings.Contains(d.row, "`"+f+"`") && (noID != nil || !strings.Contains(d.row, "a field for each delivery")) && f != "worker-1" {
				w.Errorf("%s has a field %s, which its row in redis.md does not name", key, f)
			}
		}
	}
}

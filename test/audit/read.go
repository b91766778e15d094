package audit

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/fanout/fanout/internal/delivery"
)

// Delivery is one record, with the evidence beside it.
type Delivery struct {
	delivery.Delivery
	Reason  delivery.Outcome // of a dead one
	Worker  string           // that holds it, while leased
	History []delivery.Attempt

	prefix string
}

// Subscriber is what the scheduler keeps of one.
type Subscriber struct {
	ID      string
	Deleted bool
	Leases  int // that it counts as open

	prefix, class                    string
	fields                           map[string]string
	paused, disabled                 bool
	limit                            int // its in-flight cap as it stands
	latency, throttled, open, tokens int64
	since, held                      int64
	probe                            string
	places                           map[string]string // by lane, a letter each
}

// Event is one stored event.
type Event struct {
	ID         string
	Planned    []string // the subscribers that it was planned for
	Deliveries int      // as its producer was told
	Open       bool     // not expanded to the end
}

// Ledger is the sum over all partitions.
type Ledger struct{ Accepted, Pending, Delivered, Dead, Cancelled int64 }

// Snapshot is all that stands in Redis. It is not read at one instant: take it
// when nobody writes.
type Snapshot struct {
	Deliveries  map[string]*Delivery
	Subscribers map[string]*Subscriber
	Events      map[string]*Event
	Ledger      Ledger
	Leases      int // open, those of final deliveries included
	Open, Late  int // events in the lists of that name

	keys    map[string]bool
	bodies  map[string]bool               // events whose payload is there
	zsets   map[string]map[string]float64 // by key
	ledgers map[string]Ledger             // by partition prefix
	held    map[string]int64              // and what it counts as held
	claims  map[string]string             // the cohort that has a delivery
	damaged []string
}

// batch is how many keys one round trip reads.
const batch = 500

// Read takes a snapshot of a Redis or of all primaries of a cluster.
func Read(ctx context.Context, rdb redis.UniversalClient) (*Snapshot, error) {
	s := &Snapshot{
		Deliveries: map[string]*Delivery{}, Subscribers: map[string]*Subscriber{}, Events: map[string]*Event{},
		keys: map[string]bool{}, bodies: map[string]bool{}, zsets: map[string]map[string]float64{}, ledgers: map[string]Ledger{}, held: map[string]int64{},
		claims: map[string]string{},
	}
	all, err := keys(ctx, rdb)
	if err != nil {
		return nil, fmt.Errorf("audit: list keys: %w", err)
	}
	for part := range slices.Chunk(all, batch) {
		if err := s.read(ctx, rdb, part); err != nil {
			return nil, fmt.Errorf("audit: %w", err)
		}
	}
	s.join()
	return s, nil
}

// keys lists every key of the service, each once.
func keys(ctx context.Context, rdb redis.UniversalClient) ([]string, error) {
	var mu sync.Mutex
	var all []string
	scan := func(ctx context.Context, node redis.Cmdable) error {
		it := node.Scan(ctx, 0, "{fo:*", 1000).Iterator()
		for it.Next(ctx) {
			mu.Lock()
			all = append(all, it.Val())
			mu.Unlock()
		}
		return it.Err()
	}
	var err error
	if c, ok := rdb.(*redis.ClusterClient); ok {
		err = c.ForEachMaster(ctx, func(ctx context.Context, node *redis.Client) error { return scan(ctx, node) })
	} else {
		err = scan(ctx, rdb)
	}
	slices.Sort(all)
	return slices.Compact(all), err // SCAN may give a key twice
}

// split cuts a key into the prefix of its partition, its kind, and what follows.
func split(key string) (prefix, kind, id string) {
	prefix, rest, _ := strings.Cut(key, "}:")
	kind, id, _ = strings.Cut(rest, ":")
	return prefix + "}:", kind, id
}

func isEvents(prefix string) bool { return strings.HasPrefix(prefix, "{fo:e") }

// read reads a batch of keys, each by the command of its kind.
func (s *Snapshot) read(ctx context.Context, rdb redis.UniversalClient, part []string) error {
	take := make([]func(), 0, len(part))
	_, err := rdb.Pipelined(ctx, func(p redis.Pipeliner) error {
		for _, key := range part {
			s.keys[key] = true
			if prefix, kind, id := split(key); isEvents(prefix) && kind == "body" {
				s.bodies[id] = true
			}
			if t := s.queue(ctx, p, key); t != nil {
				take = append(take, t)
			}
		}
		return nil
	})
	if err != nil && !errors.Is(err, redis.Nil) { // one may expire under our hands
		return fmt.Errorf("read %d keys: %w", len(part), err)
	}
	for _, t := range take {
		t()
	}
	return nil
}

// queue sends the command that reads a key, and returns what takes in its answer.
func (s *Snapshot) queue(ctx context.Context, p redis.Pipeliner, key string) func() {
	prefix, kind, id := split(key)
	switch {
	case isEvents(prefix) && kind == "ev":
		cmd := p.HGetAll(ctx, key)
		return func() { s.event(id, cmd.Val()) }
	case isEvents(prefix) && kind == "open", isEvents(prefix) && kind == "late":
		return s.zset(ctx, p, key)
	case isEvents(prefix):
		return nil
	}
	switch kind {
	case "d":
		cmd := p.Get(ctx, key)
		return func() {
			if cmd.Err() == nil {
				s.delivery(prefix, id, cmd.Val())
			}
		}
	case "att":
		cmd := p.LRange(ctx, key, 0, -1)
		return func() { s.history(id, cmd.Val()) }
	case "sub":
		cmd := p.HGetAll(ctx, key)
		return func() { s.subscriber(prefix, id, cmd.Val()) }
	case "ledger":
		cmd := p.HGetAll(ctx, key)
		return func() { s.ledger(prefix, cmd.Val()) }
	case "claims":
		cmd := p.HGetAll(ctx, key)
		return func() { maps.Copy(s.claims, cmd.Val()) }
	case "q", "pend", "leases", "dead", "due", "ready", "slow", "age", "expiry", "held", "cohort", "out":
		return s.zset(ctx, p, key)
	}
	return nil
}

func (s *Snapshot) zset(ctx context.Context, p redis.Pipeliner, key string) func() {
	cmd := p.ZRangeWithScores(ctx, key, 0, -1)
	return func() {
		m := make(map[string]float64, len(cmd.Val()))
		for _, z := range cmd.Val() {
			m[fmt.Sprint(z.Member)] = z.Score
		}
		s.zsets[key] = m
	}
}

// short is a record before its first attempt, if all is as usual.
var short = regexp.MustCompile(`^sf(\d+) (\d+) (\S+) (\S+)$`)

// How many words any other record has: without a history, and with one. docs/redis.md
// has the list.
const (
	headWords  = 5
	totalWords = 21
)

var (
	states = map[string]delivery.State{
		"s": delivery.Scheduled, "l": delivery.Leased, "d": delivery.Delivered, "x": delivery.Dead, "c": delivery.Cancelled,
	}
	lanes = map[string]delivery.Lane{"f": delivery.Fresh, "r": delivery.Retry, "d": delivery.Redrive}
)

func (s *Snapshot) delivery(prefix, id, text string) {
	w := strings.Split(text, " ")
	if m := short.FindStringSubmatch(text); m != nil {
		accepted, _ := strconv.ParseInt(m[1], 10, 64)
		seconds, _ := strconv.ParseInt(m[2], 10, 64)
		w = []string{"sf", m[1], strconv.FormatInt(accepted+1000*seconds, 10), "evt_" + m[3], "sub_" + m[4]}
	}
	if len(w) == headWords {
		w = append(w, w[1])
		w = append(w, strings.Fields("0 0 0 0 0 0 0 0 0 0 0 0 - - -")...)
	}
	if len(w) != totalWords || len(w[0]) != 2 || states[w[0][:1]] == "" || lanes[w[0][1:]] == "" {
		s.damaged = append(s.damaged, fmt.Sprintf("%s has a damaged record: %q", id, text))
		return
	}
	n := make([]int64, totalWords)
	for _, i := range []int{1, 2, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17} {
		v, err := strconv.ParseInt(w[i], 10, 64)
		if err != nil {
			s.damaged = append(s.damaged, fmt.Sprintf("%s has a damaged record, word %d: %q", id, i+1, text))
			return
		}
		n[i] = v
	}
	d := s.of(id)
	d.prefix, d.Worker, d.Reason = prefix, w[20], delivery.Outcome(w[19])
	d.Delivery = delivery.Delivery{
		ID: id, State: states[w[0][:1]], Lane: lanes[w[0][1:]], EventID: w[3], SubscriberID: w[4],
		AcceptedAt: at(n[1]), ExpiresAt: at(n[2]), DueAt: at(n[5]), Attempts: int(n[6]), DeliveryCount: n[7],
		Settled: n[8], Releases: int(n[9]), LeaseLosses: int(n[10]), RedriveGeneration: int(n[11]),
		BudgetBase: int(n[12]), Budget: int(n[13]), FirstAttemptAt: at(n[14]), LastAttemptAt: at(n[15]),
		EndedAt: at(n[16]), LastStatus: int(n[17]), LastOutcome: delivery.Outcome(w[18]),
	}
}

// of is a delivery that may be known by its evidence before its record is read.
func (s *Snapshot) of(id string) *Delivery {
	if s.Deliveries[id] == nil {
		s.Deliveries[id] = &Delivery{}
	}
	return s.Deliveries[id]
}

func at(ms int64) time.Time {
	if ms == 0 {
		return time.Time{}
	}
	return time.UnixMilli(ms)
}

func (s *Snapshot) history(id string, list []string) {
	for _, text := range list {
		var a delivery.Attempt
		if err := json.Unmarshal([]byte(text), &a); err != nil {
			s.damaged = append(s.damaged, fmt.Sprintf("%s has damaged evidence: %v", id, err))
			continue
		}
		s.of(id).History = append(s.of(id).History, a)
	}
}

func (s *Snapshot) subscriber(prefix, id string, h map[string]string) {
	terms, run, guard := strings.Fields(h["terms"]), strings.Fields(h["run"]), strings.Fields(h["guard"])
	if len(guard) == 0 {
		guard = strings.Fields("0 0 0 0 0 0 - - 0 0 0 0")
	}
	if len(terms) != 8 || len(run) < 7 || len(run) > 8 || len(guard) != 12 || len(run[6]) != 4 {
		s.damaged = append(s.damaged, fmt.Sprintf("%s has a damaged state: %v", id, h))
		return
	}
	n := func(w string) int64 {
		v, err := strconv.ParseFloat(w, 64)
		if err != nil {
			s.damaged = append(s.damaged, fmt.Sprintf("%s has a damaged state: %q in %v", id, w, h))
		}
		return int64(v)
	}
	every, burst := n(terms[3]), n(terms[4])
	s.Subscribers[id] = &Subscriber{
		ID: id, Deleted: h["tomb"] == "1", Leases: int(n(run[0])), prefix: prefix, class: terms[0], fields: h,
		paused: terms[7] == "1", disabled: guard[2] == "1", limit: int(min(n(terms[1]), n(run[3])/10_000)),
		latency: n(run[4]), throttled: n(guard[3]), open: n(guard[4]), probe: guard[6], since: n(guard[9]), held: n(guard[10]),
		tokens: n(run[5]) - (burst-1)*every + 1,
		places: map[string]string{"f": run[6][1:2], "r": run[6][2:3], "d": run[6][3:4]},
	}
}

// event reads "0:sub_a 86400000,sub_b 3600000;3:sub_c 86400000" out of its plan.
func (s *Snapshot) event(id string, h map[string]string) {
	e := &Event{ID: id}
	e.Deliveries, _ = strconv.Atoi(h["n"])
	for part := range strings.FieldsFuncSeq(h["subs"], func(r rune) bool { return r == ';' }) {
		_, list, _ := strings.Cut(part, ":")
		for item := range strings.SplitSeq(list, ",") {
			sub, _, _ := strings.Cut(item, " ")
			e.Planned = append(e.Planned, sub)
		}
	}
	s.Events[id] = e
}

func (s *Snapshot) ledger(prefix string, h map[string]string) {
	n := func(field string) int64 {
		v, _ := strconv.ParseInt(h[field], 10, 64)
		return v
	}
	s.held[prefix] = n("held")
	s.ledgers[prefix] = Ledger{n("accepted"), n("pending"), n("delivered"), n("dead"), n("cancelled")}
}

// join fills in what more than one key says.
func (s *Snapshot) join() {
	for _, l := range s.ledgers {
		s.Ledger.Accepted += l.Accepted
		s.Ledger.Pending += l.Pending
		s.Ledger.Delivered += l.Delivered
		s.Ledger.Dead += l.Dead
		s.Ledger.Cancelled += l.Cancelled
	}
	for key, members := range s.zsets {
		prefix, kind, _ := split(key)
		switch {
		case isEvents(prefix) && kind == "open":
			s.Open += len(members)
			for id := range members {
				if e := s.Events[id]; e != nil {
					e.Open = true
				}
			}
		case isEvents(prefix) && kind == "late":
			s.Late += len(members)
		case kind == "leases":
			s.Leases += len(members)
		}
	}
}

package docs_test

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/fanout/fanout/internal/delivery"
	"github.com/fanout/fanout/internal/schedule"
)

// table returns the rows below a header of state-machine.md, cell by cell.
func table(t *testing.T, header string) [][]string {
	t.Helper()
	return tableOf(t, "state-machine.md", header)
}

// tableOf does so for any page.
func tableOf(t *testing.T, page, header string) [][]string {
	t.Helper()
	_, rest, ok := strings.Cut(read(t, page), header+"\n")
	if !ok {
		t.Fatalf("%s has no table %q", page, header)
	}
	var rows [][]string
	for line := range strings.Lines(rest) {
		if !strings.HasPrefix(line, "|") {
			break
		}
		if strings.HasPrefix(line, "|---") {
			continue
		}
		cells := strings.Split(strings.Trim(strings.TrimSpace(line), "|"), "|")
		for i := range cells {
			cells[i] = strings.TrimSpace(strings.ReplaceAll(cells[i], "`", ""))
		}
		rows = append(rows, cells)
	}
	return rows
}

func transitions(t *testing.T) [][]string {
	return table(t, "| from | to | script | called by | ledger | fence, and why a second run does nothing |")
}

// stage is one delivery of a subscriber of its own, brought to where a row begins.
type stage struct {
	*world
	sub, id string
	lease   schedule.Leased
}

func newStage(w *world, n int) *stage {
	s := &stage{world: w, sub: fmt.Sprintf("sub_%d", n)}
	w.subscribe(s.sub, schedule.Terms{MaxInFlight: 1})
	s.id = delivery.NewID(s.event(), s.sub)
	return s
}

func (s *stage) event() string { return "evt_" + s.sub[len("sub_"):] }

func (s *stage) post() { s.Helper(); s.world.post(s.event(), s.sub) }

// take leases the delivery, whatever others wait in its partition.
func (s *stage) take() {
	s.Helper()
	s.lease = s.world.lease(s.sub)
	if s.lease.ID != s.id {
		s.Fatalf("leased %s, want %s", s.lease.ID, s.id)
	}
}

func (s *stage) settle(v schedule.Verdict) schedule.SettleResult {
	s.Helper()
	return s.world.settle(s.lease, v)
}

// reclaim speaks for a dead worker.
func (s *stage) reclaim(v schedule.Verdict) {
	s.Helper()
	s.advance(time.Minute) // past the lease, and past the minute until the retry
	v.Reclaim, v.Outcome = true, delivery.LeaseLost
	v.GiveBack = v.Next == delivery.Scheduled
	if got := s.settle(v); got != schedule.Applied {
		s.Fatalf("reclaim: %s", got)
	}
}

func (s *stage) cancel() {
	s.Helper()
	s.ok(s.Tombstone(s.ctx, s.sub, ""))
	if _, left, _, err := s.CancelPending(s.ctx, s.sub, 10); err != nil || left != 0 {
		s.Fatalf("cancel: %d left, %v", left, err)
	}
}

func (s *stage) expire() {
	s.Helper()
	s.advance(25 * time.Hour)
	_, err := s.Expire(s.ctx, s.PartitionOf(s.sub), []schedule.Verdict{{ID: s.id}})
	s.ok(err)
}

// perform carries out one row of the transitions: to where it begins, and, by the
// function that it returns, across.
var perform = map[string]func(s *stage) func(){
	"(new) scheduled enqueue.lua": func(s *stage) func() { return s.post },
	"(new) cancelled enqueue.lua": func(s *stage) func() {
		a, targets := s.accept(s.event(), s.sub)
		s.ok(s.Tombstone(s.ctx, s.sub, ""))
		return func() {
			s.ok(s.Enqueue(s.ctx, s.event(), a.At, s.ExpandBy(a.At), s.PartitionOf(s.sub), targets))
		}
	},
	"(new) dead enqueue.lua": func(s *stage) func() {
		_, err := s.PutConfig(s.ctx, s.sub, -1, []byte("{}"), schedule.Terms{
			Class: "standard", MaxInFlight: 1, LeaseTime: 25 * time.Second, MaxHeld: 1, Paused: true,
		}, schedule.Edited)
		s.ok(err)
		s.world.post("evt_before", s.sub)
		return s.post
	},
	"scheduled leased lease.lua":     func(s *stage) func() { s.post(); return s.take },
	"leased scheduled settle.lua":    func(s *stage) func() { s.post(); s.take(); return func() { s.settle(s.failed()) } },
	"leased delivered settle.lua":    func(s *stage) func() { s.post(); s.take(); return func() { s.settle(succeeded()) } },
	"leased dead settle.lua":         func(s *stage) func() { s.post(); s.take(); return func() { s.settle(died()) } },
	"scheduled dead expire.lua":      func(s *stage) func() { s.post(); return s.expire },
	"scheduled cancelled cancel.lua": func(s *stage) func() { s.post(); return s.cancel },
	"leased cancelled cancel.lua":    func(s *stage) func() { s.post(); s.take(); return s.cancel },
	"leased scheduled release.lua": func(s *stage) func() {
		s.post()
		s.take()
		return func() {
			s.ok(s.Release(s.ctx, s.PartitionOf(s.sub), []schedule.Claim{{ID: s.id, Fence: s.lease.Fence()}}))
		}
	},
	"scheduled delivered settle.lua": func(s *stage) func() {
		s.post()
		s.take()
		s.reclaim(s.failed())
		return func() { s.settle(succeeded()) }
	},
	"dead delivered settle.lua": func(s *stage) func() {
		s.post()
		s.take()
		s.settle(died())
		return func() { s.settle(succeeded()) }
	},
	"dead (gone) trim.lua": func(s *stage) func() {
		s.post()
		s.take()
		s.settle(died())
		return func() {
			s.advance(31 * 24 * time.Hour)
			_, err := s.Trim(s.ctx, 10)
			s.ok(err)
		}
	},
	"dead scheduled redrive.lua": func(s *stage) func() {
		s.post()
		s.take()
		s.settle(died())
		return func() {
			_, err := s.Claim(s.ctx, "rdv_1", []string{s.id})
			s.ok(err)
			_, err = s.Redrive(s.ctx, "rdv_1", 2, time.Hour, []string{s.id})
			s.ok(err)
		}
	},
	"dead (gone) discard.lua": func(s *stage) func() {
		s.post()
		s.take()
		s.settle(died())
		return func() {
			_, err := s.Discard(s.ctx, []string{s.id})
			s.ok(err)
		}
	},
}

// Each transition in the table leads from its first state to its second, and moves
// the ledger as its row says; twice is as once.
func TestTransitionsAreAsDocumented(t *testing.T) {
	t.Parallel()
	rows := transitions(t)
	if len(rows) != len(perform) {
		t.Errorf("the table has %d transitions, the test knows %d", len(rows), len(perform))
	}
	for n, row := range rows {
		name := strings.Join(row[:3], " ")
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			begin, known := perform[name]
			if !known {
				t.Fatal("the test does not know how to carry it out")
			}
			s := newStage(newWorld(t), n)
			cross := begin(s)
			s.in(row[0])
			before := s.ledger()
			cross()
			s.in(row[1])
			if got := changes(before, s.ledger()); got != row[4] {
				t.Errorf("the ledger changed by %s, the table says %s", got, row[4])
			}
			if row[1] != "leased" { // the same lease again is taken by its seq, below
				cross()
			} else {
				s.seq--
				s.take()
			}
			s.in(row[1])
			if got := changes(before, s.ledger()); got != row[4] {
				t.Errorf("carried out twice, the ledger changed by %s, the table says %s", got, row[4])
			}
		})
	}
}

// in checks the state, or that there is no record.
func (s *stage) in(want string) {
	s.Helper()
	ds, err := s.Deliveries(s.ctx, []string{s.id})
	s.ok(err)
	got := "(new)"
	if want == "(gone)" {
		got = want
	}
	if len(ds) == 1 {
		got = string(ds[0].State)
	}
	if got != want {
		s.Fatalf("the delivery is %s, want %s", got, want)
	}
}

// changes writes the difference of two ledgers as the tables do.
func changes(a, b schedule.Ledger) string {
	var words []string
	for _, f := range []struct {
		name string
		d    int64
	}{
		{"accepted", b.Accepted - a.Accepted},
		{"pending", b.Pending - a.Pending},
		{"dead", b.Dead - a.Dead},
		{"delivered", b.Delivered - a.Delivered},
		{"cancelled", b.Cancelled - a.Cancelled},
	} {
		if f.d != 0 {
			words = append(words, fmt.Sprintf("%s%+d", f.name, f.d))
		}
	}
	if len(words) == 0 {
		return "none"
	}
	return strings.Join(words, " ")
}

// later brings a leased delivery, whose verdict is still out, to where a row of
// the late verdicts begins.
var later = map[string]func(s *stage){
	"scheduled, its lease reclaimed": func(s *stage) { s.reclaim(s.failed()) },
	"scheduled, a later lease settled": func(s *stage) {
		first := s.lease
		s.reclaim(s.failed())
		s.advance(time.Hour)
		s.take()
		s.settle(s.failed())
		s.lease = first
	},
	"leased by another worker": func(s *stage) {
		first := s.lease
		s.reclaim(s.failed())
		s.advance(time.Hour)
		s.take()
		s.lease = first
	},
	"dead, a later lease settled": func(s *stage) {
		first := s.lease
		s.reclaim(s.failed())
		s.advance(time.Hour)
		s.take()
		s.settle(died())
		s.lease = first
	},
	"dead, expired or reclaimed": func(s *stage) { s.reclaim(died()) },
	"delivered":                  func(s *stage) { s.settle(succeeded()) },
	"cancelled":                  func(s *stage) { s.cancel() },
	"forgotten": func(s *stage) {
		s.settle(succeeded())
		keys, err := s.rdb.Keys(s.ctx, "*d:"+s.id).Result()
		s.ok(err)
		s.ok(s.rdb.Del(s.ctx, keys...).Err()) // as its time to live would
	},
}

// A verdict that comes too late has the effect that the table says.
func TestLateVerdictsAreAsDocumented(t *testing.T) {
	t.Parallel()
	rows := table(t, "| the delivery is now | a late 2xx | ledger | a late failure |")
	if len(rows) != len(later) {
		t.Errorf("the table has %d rows, the test knows %d", len(rows), len(later))
	}
	for n, row := range rows {
		bring, known := later[row[0]]
		if !known {
			t.Errorf("the test does not know how to get to %q", row[0])
			continue
		}
		for _, c := range []struct {
			name, result, ledger string
			verdict              func(*stage) schedule.Verdict
		}{
			{"failure", row[3], "none", func(s *stage) schedule.Verdict { return s.failed() }},
			{"2xx", row[1], row[2], func(*stage) schedule.Verdict { return succeeded() }},
		} {
			t.Run(row[0]+"/"+c.name, func(t *testing.T) {
				t.Parallel()
				s := newStage(newWorld(t), n)
				s.post()
				s.take()
				bring(s)
				before := s.ledger()
				result := s.settle(c.verdict(s))
				if got := changes(before, s.ledger()); string(result) != c.result || got != c.ledger {
					t.Errorf("%s, ledger %s; the table says %s, ledger %s", result, got, c.result, c.ledger)
				}
			})
		}
	}
}

var mermaidEdge = regexp.MustCompile(`(?m)^ {4}(\S+) --> (\S+) : (\w+\.lua)`)

// The diagram and the table have the same transitions, but for the late 2xx on a
// lease that another worker holds, which the diagram cannot tell from any 2xx.
func TestTheDiagramShowsTheTransitions(t *testing.T) {
	t.Parallel()
	blocks := strings.Split(read(t, "state-machine.md"), "```mermaid\n")
	drawn, _, _ := strings.Cut(blocks[1], "```")
	var edges, rows []string
	for _, m := range mermaidEdge.FindAllStringSubmatch(drawn, -1) {
		edges = append(edges, strings.Join(m[1:], " "))
	}
	for _, row := range transitions(t) {
		edge := strings.NewReplacer("(new)", "[*]", "(gone)", "[*]").Replace(strings.Join(row[:3], " "))
		rows = append(rows, edge)
	}
	slices.Sort(edges)
	slices.Sort(rows)
	if !slices.Equal(edges, rows) {
		t.Errorf("drawn and not in the table, or the other way:\n%q\n%q", edges, rows)
	}
}

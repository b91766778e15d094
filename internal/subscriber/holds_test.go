package subscriber_test

import (
	"slices"
	"testing"
	"time"

	"github.com/fanout/fanout/internal/delivery"
	"github.com/fanout/fanout/internal/schedule"
	"github.com/fanout/fanout/internal/subscriber"
	"github.com/fanout/fanout/internal/subscriber/subtest"
	"github.com/fanout/fanout/test/redistest"
)

// endpoint is a subscriber of an engine with deliveries to fail by.
type endpoint struct {
	t     *testing.T
	e     *schedule.Engine
	store *subscriber.Store
	rig   subtest.Rig
	id    string
	seq   int64
}

func newEndpoint(t *testing.T) *endpoint {
	t.Helper()
	rdb := redistest.Client(t, redistest.Mini(t).Addr())
	rig := engineRig(t, rdb)
	e, ok := rig.Backend.(*schedule.Engine)
	if !ok {
		t.Fatal("the rig has no engine")
	}
	p := &endpoint{t: t, e: e, rig: rig, store: subscriber.New(e, subtest.AnyURL{}, nil, e.Now)}
	p.id = create(t, p.store, subscriber.Draft{Policy: &subscriber.PolicyPatch{BreakerFailures: new(1)}}).ID
	rig.Enqueue(t, p.id, 3)
	return p
}

// lease takes a delivery, if the subscriber is given any.
func (p *endpoint) lease() []schedule.Leased {
	p.t.Helper()
	p.seq++
	replies, err := p.e.Lease(p.t.Context(), []schedule.LeaseRequest{{
		Partition: p.e.PartitionOf(p.id), Worker: "w", Seq: p.seq, Rooms: oneSlot,
	}})
	if err != nil {
		p.t.Fatal(err)
	}
	return replies[0].Leased
}

// answers has the endpoint answer one attempt.
func (p *endpoint) answers(v schedule.Verdict) {
	p.t.Helper()
	got := p.lease()
	if len(got) != 1 {
		p.t.Fatalf("leased %d deliveries, want 1", len(got))
	}
	v.ID, v.Fence, v.Took = got[0].ID, got[0].Fence(), time.Millisecond
	if v.Next == "" {
		v.Next, v.DueAt = delivery.Scheduled, got[0].DueAt
	}
	s, err := p.e.Settle(p.t.Context(), p.e.PartitionOf(p.id), []schedule.Verdict{v})
	if err != nil || s.Results[0] != schedule.Applied {
		p.t.Fatalf("settle: %+v, %v", s, err)
	}
}

func (p *endpoint) wantHolds(when string, want ...schedule.Hold) {
	p.t.Helper()
	got, err := p.e.Standings(p.t.Context(), []string{p.id})
	if err != nil {
		p.t.Fatal(err)
	}
	if !slices.Equal(got[0].Holds, want) {
		p.t.Errorf("%s: on hold for %v, want %v", when, got[0].Holds, want)
	}
}

func (p *endpoint) patch(d subscriber.Draft) {
	p.t.Helper()
	if _, err := p.store.Patch(p.t.Context(), p.id, -1, d); err != nil {
		p.t.Fatal(err)
	}
}

// What an endpoint can say, and the hold that it leads to.
var (
	gone = schedule.Verdict{Outcome: delivery.Gone, Status: 410, Body: &schedule.Body{Bytes: []byte("{}")}, Decision: delivery.Decision{
		Next: delivery.Dead, Reason: delivery.Gone, Disable: true,
	}}
	busy   = schedule.Verdict{Outcome: delivery.HTTP429, Status: 429, RetryAfter: time.Hour}
	broken = schedule.Verdict{Outcome: delivery.HTTP5xx, Status: 500}
)

// TestResumeEndsWhatSomebodyCan: of one that is not paused too, and no more than that.
func TestResumeEndsWhatSomebodyCan(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		says          schedule.Verdict
		before, after []schedule.Hold
		leased        int // after the resume
	}{
		"disabled": {gone, []schedule.Hold{schedule.Disabled, schedule.Breaker}, []schedule.Hold{schedule.Breaker}, 1},
		"breaker":  {broken, []schedule.Hold{schedule.Breaker}, []schedule.Hold{schedule.Breaker}, 1},
		"throttled": {
			busy,
			[]schedule.Hold{schedule.Throttled, schedule.Breaker},
			[]schedule.Hold{schedule.Throttled, schedule.Breaker},
			0,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := newEndpoint(t)
			p.answers(c.says)
			p.wantHolds("after the answer", c.before...)
			if got := p.lease(); len(got) != 0 {
				t.Fatalf("%d deliveries were leased of a subscriber on hold", len(got))
			}
			if _, err := p.store.Resume(t.Context(), p.id); err != nil {
				t.Fatal(err)
			}
			p.wantHolds("after the resume", c.after...)
			if got := p.lease(); len(got) != c.leased {
				t.Errorf("%d deliveries were leased after the resume, want %d", len(got), c.leased)
			}
		})
	}
}

// TestAnotherURLIsAnotherEndpoint: whatever the old one earned.
func TestAnotherURLIsAnotherEndpoint(t *testing.T) {
	t.Parallel()
	for name, says := range map[string]schedule.Verdict{"gone": gone, "busy": busy, "broken": broken} {
		for what, d := range map[string]subscriber.Draft{
			"moved": {}, "moved and resumed": {Paused: new(false)}, "moved and left paused": {Name: new("n")},
		} {
			t.Run(name+" "+what, func(t *testing.T) {
				t.Parallel()
				p := newEndpoint(t)
				p.answers(says)
				if what != "moved" {
					if _, err := p.store.Pause(t.Context(), p.id); err != nil {
						t.Fatal(err)
					}
				}
				d.URL = new("https://example.com/elsewhere")
				p.patch(d)
				if what == "moved and left paused" {
					p.wantHolds(what, schedule.Paused)
					return
				}
				p.wantHolds(what)
				if got := p.lease(); len(got) != 1 {
					t.Errorf("%d deliveries were leased for the new endpoint, want 1", len(got))
				}
			})
		}
	}
}

// TestAnEditLeavesTheHolds: the endpoint is the same.
func TestAnEditLeavesTheHolds(t *testing.T) {
	t.Parallel()
	p := newEndpoint(t)
	p.answers(gone)
	p.patch(subscriber.Draft{Name: new("new name"), Policy: &subscriber.PolicyPatch{MaxInFlight: new(3)}})
	p.wantHolds("after an edit", schedule.Disabled, schedule.Breaker)
}

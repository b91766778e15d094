package demo

import (
	"errors"
	"strings"
	"testing"

	"github.com/fanout/fanout/client"
)

// right is a small play that came out right: five deliveries, one of them retried,
// one repeated answer, two dead.
func right() facts {
	return facts{
		ledger:   client.Ledger{Accepted: 5, Delivered: 3, Dead: 2, Balanced: true},
		promised: 5, repeats: 1, expectRepeats: 1,
		dead: []client.DeadLetter{
			{Reason: "http_422", Delivery: client.Delivery{
				ID: "dlv_r", SubscriberID: "sub_r", Attempts: 1, DeliveryCount: 1,
				Evidence: []client.Attempt{{Status: 422, Excerpt: "no"}},
			}},
			{Reason: "exhausted", Delivery: client.Delivery{
				ID: "dlv_h", SubscriberID: "sub_h", Attempts: 2, DeliveryCount: 3, Releases: 1,
				Evidence: []client.Attempt{{Error: "timeout"}, {Error: "timeout"}},
			}},
		},
		endpoints: []witness{
			{
				role: character{name: "good", manner: healthy}, subscriberID: "sub_g",
				tally: tally{requests: 3, verified: 3, ids: 2, delivered: 2, duplicates: 1},
			},
			{
				role: character{name: "so-so", manner: flaky}, subscriberID: "sub_f",
				tally: tally{requests: 2, verified: 2, ids: 1, delivered: 1},
			},
			{
				role: character{name: "picky", manner: rejecting}, subscriberID: "sub_r",
				tally: tally{requests: 1, verified: 1, ids: 1}, requests: func(string) int { return 1 },
			},
			{
				role: character{name: "hung", manner: failing}, subscriberID: "sub_h",
				tally: tally{requests: 2, verified: 2, ids: 1}, requests: func(string) int { return 2 },
			},
		},
	}
}

func TestFigures(t *testing.T) {
	t.Parallel()
	f := right()
	if err := f.check(); err != nil {
		t.Error(err)
	}
	const want = "accepted=5 delivered=3 dead=2 pending=0 attempts=8 verified=8 duplicates=1"
	if got := f.figures().String(); got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}

func TestCheckFindsWhatIsWrong(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		spoil func(*facts)
		want  string
	}{
		"unbalanced":             {func(f *facts) { f.ledger.Balanced = false }, "does not balance"},
		"unbalanced, not said":   {func(f *facts) { f.ledger.Accepted, f.promised = 6, 6 }, "does not balance"},
		"event lost":             {func(f *facts) { f.promised = 6 }, "receipts promised 6"},
		"pending":                {func(f *facts) { f.ledger.Pending, f.ledger.Accepted, f.promised = 1, 6, 6 }, "1 deliveries are pending"},
		"cancelled":              {func(f *facts) { f.ledger.Cancelled, f.ledger.Accepted, f.promised = 1, 6, 6 }, "were cancelled"},
		"repeat taken for new":   {func(f *facts) { f.repeats = 0 }, "called duplicates"},
		"new taken for a repeat": {func(f *facts) { f.repeats = 2 }, "called duplicates"},
		"bad signature":          {func(f *facts) { f.endpoints[0].tally.bad++; f.endpoints[0].tally.requests++ }, "does not verify"},
		"unverified":             {func(f *facts) { f.endpoints[1].tally.verified-- }, "of 8 requests 7"},
		"delivered by nobody":    {func(f *facts) { f.endpoints[0].tally.delivered-- }, "took 2 distinct"},
		"delivered, not settled": {func(f *facts) { f.endpoints[0].tally.delivered++; f.endpoints[0].tally.ids++ }, "took 4 distinct"},
		"gave up on the flaky":   {func(f *facts) { f.endpoints[1].tally.ids++ }, "took 1 of the 2"},
		"sent nothing":           {func(f *facts) { f.endpoints[3].tally = tally{} }, "hung was sent nothing"},
		"death not recorded":     {func(f *facts) { f.endpoints[2].tally.ids++ }, "saw 3 webhook-ids"},
		"nobody died": {func(f *facts) {
			f.ledger.Dead, f.ledger.Accepted, f.promised, f.dead, f.endpoints = 0, 3, 3, nil, f.endpoints[:2]
		}, "0 dead letters"},
		"dead letter not listed": {func(f *facts) { f.dead = f.dead[:1] }, "the list 1"},
		"no reason":              {func(f *facts) { f.dead[0].Reason = "" }, "no reason"},
		"no evidence":            {func(f *facts) { f.dead[1].Delivery.Evidence = nil }, "evidence of 0 of its 2"},
		"evidence of one attempt": {func(f *facts) {
			f.dead[1].Delivery.Evidence = f.dead[1].Delivery.Evidence[:1]
		}, "evidence of 1 of its 2"},
		"no excerpt":              {func(f *facts) { f.dead[0].Delivery.Evidence[0].Excerpt = "" }, "no excerpt"},
		"more requests than paid": {func(f *facts) { f.endpoints[3].requests = func(string) int { return 3 } }, "saw 3 requests"},
		"charged, never sent":     {func(f *facts) { f.endpoints[2].requests = func(string) int { return 0 } }, "saw 0 requests"},
		"a stranger's":            {func(f *facts) { f.dead[0].Delivery.SubscriberID = "sub_x" }, "not of this play"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := right()
			tt.spoil(&f)
			err := f.check()
			if !errors.Is(err, ErrWrong) || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("got %v, want %q", err, tt.want)
			}
		})
	}
}

package httpapi

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/fanout/fanout/internal/delivery"
	"github.com/fanout/fanout/internal/redrive"
	"github.com/fanout/fanout/internal/schedule"
)

// Dead letters as they are found, redriven and forgotten, with every package behind the
// API real.
func TestWholeRedrive(t *testing.T) {
	t.Parallel()
	r, engine, _ := whole(t)
	sub := r.create(`{"url":"https://a.example/","filter":{"types":["shipment.*"]},"policy":{"max_attempts":1}}`)
	var ids []string
	for i := range 3 {
		id := fmt.Sprintf("evt_%d", i)
		r.do("POST", "/v1/events", `{"id":"`+id+`",`+post(`{"n":1}`)[1:])
		settle(t, engine, sub.ID, int64(i+1), schedule.Verdict{
			Outcome: delivery.HTTP422, Status: 422, Decision: delivery.Decision{Next: delivery.Dead, Reason: delivery.HTTP422},
		})
		ids = append(ids, delivery.NewID(id, sub.ID))
	}
	got := into[DeadLetterEvidence](t, r.do("GET", "/v1/dead-letters/"+ids[0], ""), 200)
	if got.Reason != delivery.HTTP422 || got.Event.ID != "evt_0" || !strings.Contains(got.Payload.Content, `"event_id":"evt_0"`) || got.Subscriber.ID != sub.ID {
		t.Errorf("got %+v", got)
	}
	for query, want := range map[string]int{"type=" + got.Event.Type: 3, "class=" + sub.Class: 3, "reason=exhausted": 0} {
		if list := into[DeadLetterList](t, r.do("GET", "/v1/dead-letters?"+query, ""), 200); len(list.Data) != want {
			t.Errorf("%s: %d dead letters, want %d", query, len(list.Data), want)
		}
	}
	order := `{"filter":{"subscriber_id":"` + sub.ID + `"},"reason":"the endpoint is back"}`
	dry := into[RedrivePreview](t, r.do("POST", "/v1/redrives?dry_run=true", order), 200)
	if dry.Matching != 3 || dry.BySubscriber[0].SubscriberID != sub.ID || len(dry.Warnings) == 0 { // there is no dispatcher
		t.Errorf("got %+v", dry)
	}
	made := into[Redrive](t, r.do("POST", "/v1/redrives", order), 201)
	get := func() Redrive { return into[Redrive](t, r.do("GET", "/v1/redrives/"+made.ID, ""), 200) }
	until := func(is func(Redrive) bool) Redrive {
		t.Helper()
		for deadline := time.After(20 * time.Second); ; {
			if c := get(); is(c) {
				return c
			}
			select {
			case <-deadline:
				t.Fatalf("it stays %+v", get())
			case <-time.After(10 * time.Millisecond):
			}
		}
	}
	until(func(c Redrive) bool { return c.Tally.Out == 1 })
	result := into[DiscardResults](t, r.do("POST", "/v1/dead-letters/discard", fmt.Sprintf(`{"ids":[%q],"reason":"x"}`, ids[2])), 200)
	if result.Discarded != 0 || result.Results[0].Result != DiscardInRedrive {
		t.Errorf("got %+v", result)
	}
	if got := into[DeadLetterEvidence](t, r.do("GET", "/v1/dead-letters/"+ids[2], ""), 200); got.RedriveID != made.ID {
		t.Errorf("got %+v", got)
	}
	wantProblem(t, r.do("POST", "/v1/redrives/"+made.ID+"/approve", `{"effect":"too early"}`), ProblemCodeRedriveState)
	settle(t, engine, sub.ID, 9, schedule.Verdict{Outcome: delivery.HTTP422, Status: 422, Decision: delivery.Decision{Next: delivery.Dead, Reason: delivery.HTTP422}})
	paused := until(func(c Redrive) bool { return c.State == redrive.Paused })
	if paused.StoppedBy != redrive.Guard || !strings.Contains(paused.Stopped, "status 422") || paused.CanaryDeliveries[0].Reason != delivery.HTTP422 {
		t.Errorf("got %+v", paused)
	}
	into[Redrive](t, r.do("POST", "/v1/redrives/"+made.ID+"/abort", `{"reason":"it is not back"}`), 200)
	ended := until(func(c Redrive) bool { return !c.EndedAt.IsZero() })
	if ended.Tally.Dead != 1 || ended.Tally.LetGo != 2 {
		t.Errorf("got %+v", ended.Tally)
	}
	until(func(Redrive) bool {
		return into[DiscardResults](t, r.do("POST", "/v1/dead-letters/discard", fmt.Sprintf(`{"ids":[%q],"reason":"x"}`, ids[2])), 200).Discarded == 1
	})
	wantProblem(t, r.do("GET", "/v1/dead-letters/"+ids[2], ""), ProblemCodeNotFound)
	if list := into[RedriveList](t, r.do("GET", "/v1/redrives", ""), 200); len(list.Data) != 1 || list.Data[0].Tally == nil {
		t.Errorf("got %+v", list)
	}
	wantPointers(t, wantProblem(t, r.do("POST", "/v1/redrives", `{"filter":{"until":"2020-01-01T00:00:00Z","since":"2020-01-02T00:00:00Z"},"reason":"x","canaries":11}`),
		ProblemCodeInvalidRequest), "/canaries", "/filter/until", "/reason")
}

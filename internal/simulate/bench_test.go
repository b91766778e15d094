package simulate

import (
	"fmt"
	"testing"
	"time"

	"github.com/fanout/fanout/internal/delivery"
	"github.com/fanout/fanout/internal/schedule"
	"github.com/fanout/fanout/test/redistest"
)

// What a delivery costs by the real scripts on the stand-in: accepted, expanded, leased and
// settled. It is why the holds are modelled.
func BenchmarkEngine(b *testing.B) {
	rdb := redistest.Client(b, redistest.Mini(b).Addr())
	e, err := schedule.Open(b.Context(), rdb, schedule.Options{TestClock: true})
	if err != nil {
		b.Fatal(err)
	}
	terms := schedule.Terms{Class: "standard", MaxInFlight: 16, LeaseTime: time.Minute}
	if _, err := e.PutConfig(b.Context(), "s", 0, []byte("{}"), terms, schedule.Edited); err != nil {
		b.Fatal(err)
	}
	to := []schedule.Target{{SubscriberID: "s", MaxAge: time.Hour}}
	seq := int64(0)
	for b.Loop() {
		seq++
		id := fmt.Sprintf("e%d", seq)
		a, err := e.Accept(b.Context(), schedule.NewEvent{ID: id, BodyHash: "h", Body: []byte("{}"), Targets: to})
		if err == nil {
			err = e.Enqueue(b.Context(), id, a.At, e.ExpandBy(a.At), 0, to)
		}
		if err != nil {
			b.Fatal(err)
		}
		rooms := schedule.Rooms{Total: 10, Fresh: 10, Retry: 10, Slow: 10}
		got, err := e.Lease(b.Context(), []schedule.LeaseRequest{{Worker: "w", Seq: seq, Rooms: rooms, Free: 100}})
		if err != nil || len(got[0].Leased) != 1 {
			b.Fatal(got, err)
		}
		l := got[0].Leased[0]
		_, err = e.Settle(b.Context(), 0, []schedule.Verdict{{
			ID: l.ID, Fence: l.Fence(), Outcome: delivery.OK, Status: 200, Decision: delivery.Decision{Next: delivery.Delivered},
		}})
		if err != nil {
			b.Fatal(err)
		}
	}
}

// What it costs here, a whole run over its deliveries.
func BenchmarkSimulate(b *testing.B) {
	sc := Builtin("calm")
	sc.Fill()
	sc.Duration = delivery.Duration(time.Duration(b.N) * time.Second / 100)
	b.ResetTimer()
	if _, err := Run(b.Context(), sc, nil); err != nil {
		b.Fatal(err)
	}
}

package dispatch

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/fanout/fanout/internal/delivery"
	"github.com/fanout/fanout/internal/schedule"
	"github.com/fanout/fanout/internal/webhook"
)

// A worker says how busy it is: how many slots are in use, and what they led to.
func TestWorkerReports(t *testing.T) {
	run(t, Options{Slots: 10, Slice: "canary", Version: "v1", ReapEvery: never}, func(r *rig) {
		r.endpoint(func(context.Context, webhook.Request) webhook.Answer {
			time.Sleep(3 * time.Second)
			return webhook.Answer{Outcome: delivery.OK, Status: 200, Duration: 3 * time.Second}
		})
		for i := range 4 {
			r.enqueue(fmt.Sprint("e", i), fmt.Sprint("s", i))
		}
		after(2500 * time.Millisecond)
		var got schedule.WorkerReport
		r.set(func() { got = r.reported })
		if got.Used() != 4 || got.Slots != 10 || got.Slice != "canary" || got.Version != "v1" || got.Worker == "" {
			t.Errorf("while it sends: %+v", got)
		}
		after(2 * time.Second)
		r.set(func() { got = r.reported })
		if got.Used() != 0 || got.Delivered != 4 || got.Attempts != 4 || got.PerSecond != 2 || got.SlotSeconds < 3 || got.SlotSeconds > 3.2 {
			t.Errorf("after: %+v", got)
		}
	})
}

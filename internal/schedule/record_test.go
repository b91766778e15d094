package schedule_test

import (
	"testing"
	"time"

	"github.com/fanout/fanout/internal/delivery"
	"github.com/fanout/fanout/internal/schedule"
)

// What most of a backlog is takes as little as can be; whatever does not fit into that
// form is as good a delivery.
func TestRecordsBeforeTheFirstAttempt(t *testing.T) {
	t.Parallel()
	contract(t, schedule.Options{}, func(t *testing.T, w *world) {
		t.Helper()
		const longest = "0123456789ABCDEFGHJKMNPQRS"
		for _, c := range []struct {
			event, sub string
			age        time.Duration
			short      bool
		}{
			{"evt_" + longest, "sub_" + longest, day, true},
			{"evt_1", "sub_1", 30 * day, true},
			{"evt_1", "sub_2", 1500 * time.Millisecond, false},
			{"order-7", "sub_1", day, false},
			{"evt_", "sub_1", day, false},
			{"evt_1", "s1", day, false},
		} {
			w.subscribe(c.sub, 100)
			targets := []schedule.Target{{SubscriberID: c.sub, MaxAge: c.age}}
			ev := schedule.NewEvent{ID: c.event, BodyHash: "h", Body: []byte("{}"), Targets: targets}
			a, err := w.Accept(w.ctx, ev)
			w.ok(err)
			w.ok(w.Enqueue(w.ctx, c.event, a.At, w.ExpandBy(a.At), 0, targets))
			id := delivery.NewID(c.event, c.sub)
			key := w.keys("*:d:" + id)[0]
			text, err := w.rdb.Get(w.ctx, key).Result()
			w.ok(err)
			if short := text[2] != ' '; short != c.short {
				t.Errorf("%s to %s: %q", c.event, c.sub, text)
			}
			// Redis' own header and a NUL make it 80, a size of the allocator.
			if c.age == day && c.short && len(text) > 76 {
				t.Errorf("%q has %d bytes, want 76 at most", text, len(text))
			}
			want := func(s delivery.State, attempts int) {
				t.Helper()
				d := w.get(id)
				if d.EventID != c.event || d.SubscriberID != c.sub || d.State != s || d.Attempts != attempts ||
					d.AcceptedAt != a.At || d.ExpiresAt != a.At.Add(c.age) || d.DueAt != a.At {
					t.Errorf("%s of %q: %+v", s, text, d.Delivery)
				}
			}
			want(delivery.Scheduled, 0)
			l := w.one("w")
			if l.ID != id || l.EventID != c.event || l.SubscriberID != c.sub || l.ExpiresAt != a.At.Add(c.age) {
				t.Errorf("leased from %q: %+v", text, l)
			}
			want(delivery.Leased, 1)
			w.ok(w.Release(w.ctx, 0, []schedule.Claim{{ID: id, Fence: l.DeliveryCount}}))
			want(delivery.Scheduled, 0)
			w.cancelAll(c.sub, 10)
			want(delivery.Cancelled, 0)
		}
		w.audit()
	})
}

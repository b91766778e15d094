package oncall

import (
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/fanout/fanout/internal/delivery"
	"github.com/fanout/fanout/internal/schedule"
)

// standings are of one subscriber for each hold, the longest first.
func standings() []schedule.Standing {
	return []schedule.Standing{
		{
			SubscriberID: "sub_01JDN8PAUSED", Holds: []schedule.Hold{schedule.Paused, schedule.Breaker},
			Since: ago(26 * time.Hour), ProbeAt: ago(time.Hour), Pending: 1204,
		},
		{SubscriberID: "sub_01JDN8GONE", Holds: []schedule.Hold{schedule.Disabled}, Since: ago(3 * time.Hour), Pending: 7},
		{
			SubscriberID: "sub_01JDN8BUSY", Holds: []schedule.Hold{schedule.Throttled, schedule.Breaker}, Since: ago(time.Hour),
			ThrottledUntil: redisNow.Add(30 * time.Minute), ProbeAt: redisNow.Add(time.Minute), Pending: 30,
		},
		{
			SubscriberID: "sub_01JDN8THROTTLED", Holds: []schedule.Hold{schedule.Throttled}, Since: ago(time.Minute),
			ThrottledUntil: redisNow.Add(time.Minute),
		},
		{
			SubscriberID: "sub_01JDN8PROBED", Holds: []schedule.Hold{schedule.Breaker}, Since: ago(40 * time.Second),
			Probe: "dlv_3f9a7k2m4n6p8q0r1s3t5v70", Pending: 4,
		},
	}
}

// holding is calm with those subscribers on hold.
func holding() *fakeSource {
	s := calm()
	s.OnHold, s.Held = 5, 1245
	return &fakeSource{sample: s, onHold: standings()}
}

func TestHeldOf(t *testing.T) {
	t.Parallel()
	got := heldOf(standings())
	until := map[string]time.Time{
		"sub_01JDN8BUSY": redisNow.Add(30 * time.Minute), "sub_01JDN8THROTTLED": redisNow.Add(time.Minute),
	}
	for i, h := range got {
		s := standings()[i]
		want := HeldSubscriber{
			ID: s.SubscriberID, Reasons: s.Holds, Since: s.Since, Until: until[s.SubscriberID], Probing: s.Probe != "", Pending: s.Pending,
		}
		if diff := cmp.Diff(want, h); diff != "" {
			t.Errorf("%s (-want +got):\n%s", s.SubscriberID, diff)
		}
	}
	if n := len(heldOf(make([]schedule.Standing, maxHolds+1))); n != maxHolds {
		t.Errorf("%d are held, want at most %d", n, maxHolds)
	}
}

// A backlog that is held, however old and large, is said and is no breach of ours.
func TestHeldIsNoBreach(t *testing.T) {
	t.Parallel()
	for held, want := range map[[2]int64]string{
		{0, 0}: "", {1, 0}: "1 subscriber is on hold, and 0 deliveries wait for that to end",
		{1, 1}:     "1 subscriber is on hold, and 1 delivery waits for that to end",
		{3, 12345}: "3 subscribers are on hold, and 12,345 deliveries wait for that to end",
	} {
		s := calm()
		s.Ages = []schedule.Ages{{Class: "express", Lane: delivery.Fresh, Held: ago(48 * time.Hour)}}
		s.OnHold, s.Held = held[0], held[1]
		v := Judge(snapshot(twoClasses, s, time.Now(), nil), Sight{}, 5*time.Second)
		if v.State != Within || v.Worst.Age != 0 || v.HeldText() != want {
			t.Errorf("%v: %s, worst %+v, %q; want %q", held, v.State, v.Worst, v.HeldText(), want)
		}
	}
}

func TestPageShowsHolds(t *testing.T) {
	t.Parallel()
	source := holding()
	o := newOnCall(t, source, Options{})
	o.sample(t.Context())
	_, body := get(t, o.Page(), "/oncall")
	for _, want := range []string{
		"<li>5 subscribers are on hold, and 1,245 deliveries wait for that to end</li>",
		`<th scope="row">subscribers on hold</th><td>5</td>`, `<th scope="row">deliveries that wait for them</th><td>1,245</td>`,
		`<a href="/oncall/subscribers/sub_01JDN8PAUSED">sub_01JDN8PAUSED</a>`,
		`<time datetime="2031-05-03T12:03:02Z">12:03:02 <span>3 May</span></time>`,
		`<td role="cell" class="reason">paused, breaker</td>` + "\n" + `<td role="cell" class="attempts" data-th="waiting">1,204</td>`,
		`<td role="cell" class="ends">when it is resumed</td>`,
		`<td role="cell" class="ends">next probe <time datetime="2031-05-04T14:33:02Z">14:33:02`,
		`<td role="cell" class="ends">by itself <time datetime="2031-05-04T14:04:02Z">14:04:02`,
		`<td role="cell" class="ends">if its probe, now out, succeeds</td>`,
	} {
		if !strings.Contains(body, want) {
			t.Errorf("the page lacks %q", want)
		}
	}
	if strings.Contains(body, "more.</p>") {
		t.Error("all are shown, and the page speaks of more")
	}
	if tables, captions := strings.Count(body, "<table"), strings.Count(body, "<caption"); tables != captions {
		t.Errorf("%d tables have %d captions", tables, captions)
	}
	_, body = get(t, o.JSON(), "/v1/oncall")
	for _, want := range []string{
		`"subscribers_on_hold":5,"deliveries_held":1245,`,
		`"on_hold":[{"subscriber_id":"sub_01JDN8PAUSED","reasons":["paused","breaker"],"since":"2031-05-03T12:03:02Z","pending":1204},`,
		`{"subscriber_id":"sub_01JDN8BUSY","reasons":["throttled","breaker"],"since":"2031-05-04T13:03:02Z","until":"2031-05-04T14:33:02Z","pending":30}`,
	} {
		if !strings.Contains(body, want) {
			t.Errorf("the report lacks %s: %s", want, body)
		}
	}

	for i := len(source.onHold); i < 30; i++ {
		source.onHold = append(source.onHold, standings()[1])
	}
	source.sample.OnHold = 1030
	o.sample(t.Context())
	if _, body = get(t, o.Page(), "/oncall"); !strings.Contains(body, `<p class="none">and 1,010 more.</p>`) ||
		strings.Count(body, `class="ends"`) != maxHolds {
		t.Error("the page does not say how many more are on hold")
	}
	if _, body = get(t, sampled(t, calm()).Page(), "/oncall"); !strings.Contains(body, "No subscriber is on hold.") ||
		strings.Contains(body, "on hold, and") {
		t.Error("nobody is on hold, and the page does not say so")
	}
}

// The list follows the count at once and its own figures soon, costs nothing while
// nobody is on hold, and outlives a read that fails.
func TestRunFollowsTheHolds(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		source := holding()
		source.holdErr = errors.New("moved")
		o := newOnCall(t, source, Options{})
		stop := run(t, o)
		wantShown := func(after time.Duration, shown, reads int) {
			t.Helper()
			time.Sleep(after)
			synctest.Wait()
			s, _ := o.Latest()
			source.set(func(f *fakeSource) {
				if len(s.Holds) != shown || f.holds != reads {
					t.Errorf("%d on hold shown after %d reads, want %d after %d", len(s.Holds), f.holds, shown, reads)
				}
			})
		}
		wantShown(time.Millisecond, 0, 1)
		source.set(func(f *fakeSource) { f.holdErr = nil })
		wantShown(time.Second, 5, 2) // a read that failed is tried again at the next sample
		wantShown(time.Second, 5, 2)
		source.set(func(f *fakeSource) { f.onHold, f.sample.OnHold = standings()[:2], 2 })
		wantShown(time.Second, 2, 3)
		source.set(func(f *fakeSource) { f.onHold = standings()[1:2] })
		wantShown(2*time.Second, 1, 4)
		source.set(func(f *fakeSource) { f.holdErr = errDown })
		wantShown(2*time.Second, 1, 5)
		source.set(func(f *fakeSource) { f.sample.OnHold = 0 })
		wantShown(time.Minute, 0, 5)
		stop()
	})
}

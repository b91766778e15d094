package ingest

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/fanout/fanout/internal/fault"
	"github.com/fanout/fanout/internal/schedule"
)

func TestSubmitStoresAndExpands(t *testing.T) {
	t.Parallel()
	b := setup(t, 10, Options{})
	r, err := b.Submit(t.Context(), validPost())
	if err != nil {
		t.Fatal(err)
	}
	if r.ID != "evt-1" || r.Deliveries != 10 || r.Duplicate || r.AcceptedAt.IsZero() {
		t.Errorf("got %+v", r)
	}
	b.store.checkDone("evt-1")

	e := b.store.events["evt-1"]
	want := `{"type":"shipment.delivered","timestamp":"2026-03-01T09:30:00.5+09:00","event_id":"evt-1","shipment_id":"shp_1",` +
		`"attributes":{"carrier":"dhl","seller_id":"s_1"},"data":{"b":1.0,"a":18446744073709551616,"a":2}}`
	if diff := cmp.Diff(want, string(e.Body)); diff != "" {
		t.Error(diff)
	}
	for i, target := range e.Targets {
		if target.MaxAge != time.Duration(i+1)*time.Hour {
			t.Errorf("target %d lives for %v: not what its policy says", i, target.MaxAge)
		}
	}
	if diff := cmp.Diff(validPost().event(), b.dir.lastSeen); diff != "" {
		t.Errorf("matched by another event: %s", diff)
	}
}

func TestSubmitGivesAnID(t *testing.T) {
	t.Parallel()
	b := setup(t, 1, Options{})
	p := validPost()
	p.ID = ""
	first, err := b.Submit(t.Context(), p)
	if err != nil {
		t.Fatal(err)
	}
	second, err := b.Submit(t.Context(), p)
	if err != nil {
		t.Fatal(err)
	}
	if first.ID == second.ID || second.Duplicate || !strings.HasPrefix(first.ID, "evt_") {
		t.Errorf("got %+v, then %+v", first, second)
	}
	b.store.checkDone(first.ID)
	b.store.checkDone(second.ID)
	if !strings.Contains(string(b.store.events[first.ID].Body), `"event_id":"`+first.ID+`"`) {
		t.Error("the body lacks the id that was given")
	}
}

func TestSubmitMatchesNobody(t *testing.T) {
	t.Parallel()
	b := setup(t, 0, Options{})
	r, err := b.Submit(t.Context(), validPost())
	if err != nil || r.Deliveries != 0 || r.Duplicate {
		t.Fatalf("got %+v, %v", r, err)
	}
	b.store.checkDone("evt-1")
}

// The event of a producer who waited for the reply to a PATCH sees that PATCH.
func TestSubmitSeesSubscribersAsOfNow(t *testing.T) {
	t.Parallel()
	b := setup(t, 1, Options{})
	for n := 1; n <= 3; n++ {
		b.dir.set(subs(n))
		p := validPost()
		p.ID = fmt.Sprint("evt-", n)
		if r, err := b.Submit(t.Context(), p); err != nil || r.Deliveries != n {
			t.Errorf("with %d subscribers: %+v, %v", n, r, err)
		}
	}
}

func TestSubmitManyAtOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := setup(t, 20, Options{})
		b.store.setFaults(func(n int, _ string) mishap { return mishap{slow: time.Duration(n%7) * time.Millisecond} })
		other := b.another()
		receipts := make([]Receipt, 50)
		var wg sync.WaitGroup
		for i := range receipts {
			wg.Go(func() {
				s := b.Service
				if i%2 == 1 {
					s = other.Service
				}
				var err error
				if receipts[i], err = s.Submit(t.Context(), validPost()); err != nil {
					t.Error(err)
				}
			})
		}
		wg.Wait()
		b.strikes.close()
		other.strikes.close()
		firsts := 0
		for _, r := range receipts {
			if !r.Duplicate {
				firsts++
			}
			r.Duplicate = receipts[0].Duplicate
			if diff := cmp.Diff(receipts[0], r); diff != "" {
				t.Errorf("two answers: %s", diff)
			}
		}
		if firsts != 1 {
			t.Errorf("%d posts were told to be the first", firsts)
		}
		b.store.checkDone("evt-1")
		if n := b.store.count("plan"); n > 0 {
			t.Errorf("%d duplicates meddled with a fresh plan", n)
		}
	})
}

func TestSubmitOtherBodyConflicts(t *testing.T) {
	t.Parallel()
	b := setup(t, 3, Options{})
	first, err := b.Submit(t.Context(), validPost())
	if err != nil {
		t.Fatal(err)
	}
	before := *b.store.events["evt-1"]
	other := validPost()
	other.Data = []byte(`{"b":1,"a":18446744073709551616,"a":2}`) // 1 for 1.0
	if _, err := b.Submit(t.Context(), other); !errors.Is(err, schedule.ErrConflict) || !strings.Contains(err.Error(), "evt-1") {
		t.Errorf("got %v", err)
	}
	if diff := cmp.Diff(before.NewEvent, b.store.events["evt-1"].NewEvent); diff != "" {
		t.Errorf("the first event was touched: %s", diff)
	}
	again, err := b.Submit(t.Context(), validPost())
	first.Duplicate = true
	if err != nil || again != first {
		t.Errorf("got %+v %v, want %+v", again, err, first)
	}
}

// A repeat is answered by the first acceptance, whoever matches by now.
func TestSubmitRepeatKeepsFrozenPlan(t *testing.T) {
	t.Parallel()
	b := setup(t, 3, Options{})
	if _, err := b.Submit(t.Context(), validPost()); err != nil {
		t.Fatal(err)
	}
	b.dir.set(subs(9))
	r, err := b.Submit(t.Context(), validPost())
	if err != nil || r.Deliveries != 3 || !r.Duplicate {
		t.Errorf("got %+v %v", r, err)
	}
	b.store.checkDone("evt-1")
}

func TestSubmitMaxFanout(t *testing.T) {
	t.Parallel()
	b := setup(t, 11, Options{MaxFanout: 10})
	_, err := b.Submit(t.Context(), validPost())
	if !errors.Is(err, ErrMaxFanout) || !strings.Contains(err.Error(), "11 subscribers match, max_fanout is 10") {
		t.Errorf("got %v", err)
	}
	if b.store.count("accept") > 0 {
		t.Errorf("the store was told to accept it: %v", b.store.calls)
	}
	b.dir.set(subs(10))
	if r, err := b.Submit(t.Context(), validPost()); err != nil || r.Deliveries != 10 {
		t.Errorf("at the limit: %+v %v", r, err)
	}
	if n := setup(t, 0, Options{}).opts.MaxFanout; n != 10_000 {
		t.Errorf("the default is %d", n)
	}
}

// A conflict says what differs, as far as it is known.
func TestConflictNamesWhatDiffers(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name string
		edit func(*Post)
		want []string
	}{
		{"data", func(p *Post) { p.Data = []byte("1") }, []string{"data"}},
		{"the text of the time", func(p *Post) { p.OccurredAt = "2026-03-01T00:30:00.5Z" }, []string{"occurred_at"}},
		{"no attributes", func(p *Post) { p.Attributes = map[string]string{} }, []string{"attributes"}},
		{"several", func(p *Post) { p.Type, p.ShipmentID, p.Data = "a.b", "other", []byte("1") }, []string{"type", "shipment_id"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			b := setup(t, 2, Options{})
			if _, err := b.Submit(t.Context(), validPost()); err != nil {
				t.Fatal(err)
			}
			p := validPost()
			c.edit(&p)
			_, err := b.Submit(t.Context(), p)
			differs, is := errors.AsType[*ConflictError](err)
			if !is || !errors.Is(err, schedule.ErrConflict) {
				t.Fatalf("got %v", err)
			}
			if diff := cmp.Diff(c.want, differs.Fields); diff != "" {
				t.Error(diff)
			}
			b.store.setFaults(func(_ int, op string) mishap {
				if op == "event" {
					return mishap{before: schedule.ErrUnavailable}
				}
				return mishap{}
			})
			if _, err = b.Submit(t.Context(), p); !errors.Is(err, schedule.ErrConflict) || errors.Is(err, schedule.ErrUnavailable) {
				t.Errorf("the event cannot be read: %v", err)
			}
		})
	}
}

// A repeat is not judged by who matches today.
func TestSubmitRepeatPastMaxFanout(t *testing.T) {
	t.Parallel()
	b := setup(t, 10, Options{MaxFanout: 10})
	first, err := b.Submit(t.Context(), validPost())
	if err != nil {
		t.Fatal(err)
	}
	b.dir.set(subs(11))
	again, err := b.Submit(t.Context(), validPost())
	first.Duplicate = true
	if err != nil || again != first {
		t.Errorf("posted again: %+v %v, want %+v", again, err, first)
	}
	other := validPost()
	other.Data = []byte("1")
	if _, err := b.Submit(t.Context(), other); !errors.Is(err, schedule.ErrConflict) {
		t.Errorf("another body: %v", err)
	}
	b.store.setFaults(func(int, string) mishap { return mishap{before: schedule.ErrUnavailable} })
	if _, err := b.Submit(t.Context(), validPost()); !errors.Is(err, schedule.ErrUnavailable) || errors.Is(err, ErrMaxFanout) {
		t.Errorf("nobody knows whether it is a repeat: %v", err)
	}
	b.store.checkDone("evt-1")
}

func TestSubmitChunks(t *testing.T) {
	t.Parallel()
	b := setup(t, 1000, Options{})
	b.store.parts = 1
	if _, err := b.Submit(t.Context(), validPost()); err != nil {
		t.Fatal(err)
	}
	b.store.checkDone("evt-1")
	if diff := cmp.Diff([]int{256, 256, 256, 232}, b.store.chunks); diff != "" {
		t.Error(diff)
	}
}

func TestSubmitPassesStoreErrorsOn(t *testing.T) {
	t.Parallel()
	for _, want := range []error{schedule.ErrFull, schedule.ErrUnavailable, errors.New("ERR odd")} {
		b := setup(t, 3, Options{})
		b.store.setFaults(func(int, string) mishap { return mishap{before: want} })
		if _, err := b.Submit(t.Context(), validPost()); !errors.Is(err, want) {
			t.Errorf("got %v, want %v", err, want)
		}
		if len(b.store.events) > 0 {
			t.Error("an event is stored")
		}
	}
	b := setup(t, 3, Options{})
	b.dir.err = schedule.ErrUnavailable
	if _, err := b.Submit(t.Context(), validPost()); !errors.Is(err, schedule.ErrUnavailable) || len(b.store.calls) > 0 {
		t.Errorf("a directory that cannot refresh: %v, calls %v", err, b.store.calls)
	}
}

// An id made here cannot be a duplicate: the first try's reply was lost below us.
func TestSubmitOwnIDIsNeverADuplicate(t *testing.T) {
	t.Parallel()
	b := setup(t, 5, Options{})
	b.Service.store = acceptTwice{b.store}
	p := validPost()
	p.ID = ""
	r, err := b.Submit(t.Context(), p)
	if err != nil || r.Duplicate {
		t.Fatalf("got %+v %v", r, err)
	}
	b.store.checkDone(r.ID)
}

// A store that hangs costs a bounded wait, and never an accepted event.
func TestSubmitOverAHangingStore(t *testing.T) {
	t.Parallel()
	for _, call := range []string{"accept", "enqueue", "strike"} {
		synctest.Test(t, func(t *testing.T) {
			b := setup(t, 5, Options{})
			b.store.setFaults(func(_ int, c string) mishap {
				if c == call {
					return mishap{slow: time.Hour}
				}
				return mishap{}
			})
			start := time.Now()
			_, err := b.Service.Submit(t.Context(), validPost())
			want := 5 * time.Second
			if call == "strike" {
				want = 0 // nobody waits for it
			}
			if took := time.Since(start); took != want {
				t.Errorf("%s hangs: Submit took %v", call, took)
			}
			if (err != nil) != (call == "accept") {
				t.Errorf("%s hangs: %v", call, err)
			}
		})
	}
}

// What was enqueued before the time ran out is struck, so that each go at a slow
// plan gets further than the last.
func TestProgressIsKeptWhenTimeRunsOut(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := setup(t, 40, Options{})
		b.store.setFaults(func(n int, _ string) mishap {
			if n == 2 { // the first enqueue
				return mishap{slow: time.Hour}
			}
			return mishap{slow: time.Millisecond}
		})
		if _, err := b.Submit(t.Context(), validPost()); err != nil {
			t.Fatal(err)
		}
		if n := len(b.store.events["evt-1"].plan); n != 1 {
			t.Errorf("%d partitions left, want the one that hung", n)
		}
	})
}

// One post that is refused keeps no other of its batch from being accepted, and the
// results are in the order of the posts.
func TestSubmitBatch(t *testing.T) {
	t.Parallel()
	b := setup(t, 3, Options{})
	var posts []Post
	for i := range 200 {
		p := validPost()
		p.ID = fmt.Sprint("evt-", i)
		switch i % 10 {
		case 3:
			p.Type = "" // refused
		case 7:
			p.ID = "evt-0" // a repeat of the first, or the first of it
		case 9:
			p.ID, p.ShipmentID = "evt-0", "another" // another body
		}
		posts = append(posts, p)
	}
	if _, err := b.Submit(t.Context(), posts[0]); err != nil {
		t.Fatal(err)
	}
	results := b.SubmitBatch(t.Context(), posts)
	if len(results) != len(posts) {
		t.Fatalf("%d results of %d posts", len(results), len(posts))
	}
	for i, r := range results {
		switch i % 10 {
		case 3:
			if _, ok := errors.AsType[*fault.Invalid](r.Err); !ok {
				t.Errorf("post %d: %v", i, r.Err)
			}
		case 9:
			if !errors.Is(r.Err, schedule.ErrConflict) {
				t.Errorf("post %d: %v", i, r.Err)
			}
		default:
			if r.Err != nil || r.Receipt.ID != posts[i].ID || r.Receipt.Deliveries != 3 || r.Receipt.Duplicate != (posts[i].ID == "evt-0") {
				t.Errorf("post %d: %+v, %v", i, r.Receipt, r.Err)
			}
		}
	}
}

// Of two posts with one id in a batch the first is the event, whatever the second is.
func TestSubmitBatchKeepsTheOrderOfAnID(t *testing.T) {
	t.Parallel()
	b := setup(t, 1, Options{})
	for i := range 50 {
		first, second := validPost(), validPost()
		first.ID = fmt.Sprint("evt-", i)
		second.ID, second.ShipmentID = first.ID, "another"
		r := b.SubmitBatch(t.Context(), []Post{first, second, first})
		if r[0].Err != nil || r[0].Receipt.Duplicate || !errors.Is(r[1].Err, schedule.ErrConflict) || r[2].Err != nil || !r[2].Receipt.Duplicate {
			t.Fatalf("%+v", r)
		}
	}
}

// SubmitTo asks no filter, and nobody else gets the event.
func TestSubmitTo(t *testing.T) {
	t.Parallel()
	b := setup(t, 5, Options{})
	if err := b.dir.Refresh(t.Context()); err != nil {
		t.Fatal(err)
	}
	sub := b.dir.Match(validPost().event())[2]
	r, err := b.SubmitTo(t.Context(), validPost(), sub)
	if err != nil || r.Deliveries != 1 {
		t.Fatalf("%+v, %v", r, err)
	}
	b.strikes.flush()
	b.store.checkDone("evt-1")
	if targets := b.store.events["evt-1"].Targets; len(targets) != 1 || targets[0].SubscriberID != sub.ID {
		t.Errorf("it goes to %+v", targets)
	}
}

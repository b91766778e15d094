package subscriber_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fanout/fanout/internal/delivery"
	"github.com/fanout/fanout/internal/schedule"
	"github.com/fanout/fanout/internal/subscriber"
	"github.com/fanout/fanout/internal/subscriber/subtest"
)

var anyEvent = delivery.Event{Type: "shipment.delivered"}

// counts keeps count of a Memory's operations.
func counts(m *subtest.Memory) func(op string) int {
	var mu sync.Mutex
	n := map[string]int{}
	m.Before = func(_ context.Context, op string) error {
		mu.Lock()
		defer mu.Unlock()
		n[op]++
		return nil
	}
	return func(op string) int {
		mu.Lock()
		defer mu.Unlock()
		return n[op]
	}
}

func names(subs []*subscriber.Subscriber) (n []string) {
	for _, s := range subs {
		n = append(n, s.Name)
	}
	slices.Sort(n)
	return n
}

func refresh(t *testing.T, d *subscriber.Directory) {
	t.Helper()
	if err := d.Refresh(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// TestRefreshReadsDeltas: nothing changed costs one read, one change costs one
// more, whatever else is there.
func TestRefreshReadsDeltas(t *testing.T) {
	t.Parallel()
	m, store := newStore(t)
	var last subscriber.Subscriber
	for range 50 {
		last = create(t, store, subscriber.Draft{})
	}
	d := subscriber.NewDirectory(m)
	refresh(t, d)
	calls := counts(m)
	refresh(t, d)
	if g, c := calls("generations"), calls("changes"); g != 1 || c != 0 {
		t.Errorf("nothing changed, yet %d and %d reads", g, c)
	}
	if _, err := store.Pause(t.Context(), last.ID); err != nil {
		t.Fatal(err)
	}
	refresh(t, d)
	if g, c := calls("generations"), calls("changes"); g != 2 || c != 1 {
		t.Errorf("one change: %d and %d reads in all", g, c)
	}
	got := d.Match(anyEvent)
	byID := func(a, b *subscriber.Subscriber) int { return strings.Compare(a.ID, b.ID) }
	if len(got) != 50 || d.Len() != 50 || !slices.IsSortedFunc(got, byID) {
		t.Errorf("%d matches of %d, by id: %v", len(got), d.Len(), slices.IsSortedFunc(got, byID))
	}
}

// TestRefreshIsShared: those who ask while a check runs share the next one, and
// never the one that looked before they asked.
func TestRefreshIsShared(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		m, store := newStore(t)
		d := subscriber.NewDirectory(m)
		var checks atomic.Int64
		hold := make(chan struct{})
		m.Before = func(_ context.Context, op string) error {
			if op == "changes" && checks.Load() == 1 {
				<-hold // the first check has looked at the generations, and hangs
			}
			if op == "generations" {
				checks.Add(1)
			}
			return nil
		}
		create(t, store, subscriber.Draft{Name: new("before")})
		first := make(chan error, 1)
		go func() { first <- d.Refresh(t.Context()) }()
		synctest.Wait()

		late := create(t, store, subscriber.Draft{Name: new("late")})
		var wg sync.WaitGroup
		for range 100 {
			wg.Go(func() {
				if err := d.Refresh(t.Context()); err != nil {
					t.Error(err)
				}
				if got := names(d.Match(anyEvent)); !slices.Contains(got, "late") {
					t.Errorf("refreshed after %s was made, and sees %v", late.ID, got)
				}
			})
		}
		synctest.Wait()
		close(hold)
		wg.Wait()
		if err := <-first; err != nil {
			t.Error(err)
		}
		if n := checks.Load(); n != 2 {
			t.Errorf("%d checks, want the first and one for the hundred", n)
		}
	})
}

// TestRefreshGivesUpAlone: one caller's deadline is not the others'.
func TestRefreshGivesUpAlone(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		m, store := newStore(t)
		create(t, store, subscriber.Draft{})
		d := subscriber.NewDirectory(m)
		m.Before = func(ctx context.Context, _ string) error {
			select {
			case <-time.After(10 * time.Second): // slow
				return nil
			case <-ctx.Done():
				return ctx.Err()
			}
		}
		patient := make(chan error, 1)
		short, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := d.Refresh(short); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("the impatient got %v", err)
		}
		go func() { patient <- d.Refresh(t.Context()) }()
		if err := <-patient; err != nil || d.Len() != 1 {
			t.Errorf("the patient got %v, %d subscribers", err, d.Len())
		}
	})
}

// TestRefreshSurvivesErrors: an error is returned, what was known stays, and the
// next refresh goes on.
func TestRefreshSurvivesErrors(t *testing.T) {
	t.Parallel()
	m, store := newStore(t)
	create(t, store, subscriber.Draft{Name: new("a")})
	d := subscriber.NewDirectory(m)
	refresh(t, d)
	create(t, store, subscriber.Draft{Name: new("b")})
	for _, op := range []string{"generations", "changes"} {
		m.Before = func(_ context.Context, o string) error {
			if o == op {
				return schedule.ErrUnavailable
			}
			return nil
		}
		if err := d.Refresh(t.Context()); !errors.Is(err, schedule.ErrUnavailable) {
			t.Errorf("%s failed: %v", op, err)
		}
		if got := names(d.Match(anyEvent)); !slices.Equal(got, []string{"a"}) {
			t.Errorf("%s failed: %v are known", op, got)
		}
	}
	m.Before = nil
	refresh(t, d)
	if got := names(d.Match(anyEvent)); !slices.Equal(got, []string{"a", "b"}) {
		t.Errorf("afterwards: %v", got)
	}
}

// TestRefreshAfterALoss: Redis comes back without its last writes, and then has
// others in their place.
func TestRefreshAfterALoss(t *testing.T) {
	t.Parallel()
	m, store := newStore(t)
	a := create(t, store, subscriber.Draft{Name: new("a")})
	restore := m.Keep()
	for _, name := range []string{"a2", "a3"} {
		if _, err := store.Patch(t.Context(), a.ID, -1, subscriber.Draft{Name: &name}); err != nil {
			t.Fatal(err)
		}
	}
	for range 40 { // lands in every partition
		create(t, store, subscriber.Draft{Name: new("lost")})
	}
	d := subscriber.NewDirectory(m)
	refresh(t, d)
	restore()
	refresh(t, d)
	if got := names(d.Match(anyEvent)); !slices.Equal(got, []string{"a"}) {
		t.Errorf("after the loss: %v", got)
	}
}

// TestUnreadableSubscriber: it stays as it was, and the others go on.
func TestUnreadableSubscriber(t *testing.T) {
	t.Parallel()
	m, store := newStore(t)
	a := create(t, store, subscriber.Draft{Name: new("a")})
	d := subscriber.NewDirectory(m)
	refresh(t, d)
	version, err := m.PutConfig(t.Context(), a.ID, a.Version, []byte("{broken"), schedule.Terms{}, schedule.Edited)
	if err != nil {
		t.Fatal(err)
	}
	create(t, store, subscriber.Draft{Name: new("b")})
	refresh(t, d)
	if got := names(d.Match(anyEvent)); !slices.Equal(got, []string{"a", "b"}) {
		t.Errorf("%v", got)
	}
	if _, err := d.At(t.Context(), a.ID, version); err == nil || errors.Is(err, subscriber.ErrGone) {
		t.Errorf("at the broken version: %v", err)
	}
}

// TestBlobsOfOtherVersions: a blob with less or more in it than today's.
func TestBlobsOfOtherVersions(t *testing.T) {
	t.Parallel()
	m, store := newStore(t)
	_, err := m.PutConfig(t.Context(), "sub_OLD", 0, []byte(`{"account":"a","url":"https://example.com","class":"standard",
		"filter":{"types":["*"],"sample":0.5},"policy":{"max_attempts":3,"novelty":true},"secrets":[],"shade":"blue"}`), schedule.Terms{}, schedule.Edited)
	if err != nil {
		t.Fatal(err)
	}
	s, err := store.Get(t.Context(), "sub_OLD")
	if err != nil || s.Policy.MaxAttempts != 3 || s.Policy.MaxHeld != delivery.DefaultPolicy().MaxHeld || s.Version != 1 {
		t.Errorf("%+v, %v", s.Policy, err)
	}
}

// lateFeed hands its changes over only when it is let go.
type lateFeed struct {
	*subtest.Memory
	read, letGo chan struct{}
}

func (f lateFeed) Changes(ctx context.Context, p int, since int64) ([]schedule.Config, int64, error) {
	configs, upTo, err := f.Memory.Changes(ctx, p, since)
	f.read <- struct{}{}
	<-f.letGo
	return configs, upTo, err
}

// TestOldNewsUndoesNothing: an answer that was read before a change, and comes
// after At has seen it, is the older one.
func TestOldNewsUndoesNothing(t *testing.T) {
	t.Parallel()
	m := subtest.NewMemory(1)
	store := subscriber.New(m, subtest.AnyURL{}, nil, m.Now)
	s := create(t, store, subscriber.Draft{Name: new("old")})
	feed := lateFeed{m, make(chan struct{}), make(chan struct{})}
	d := subscriber.NewDirectory(feed)
	done := make(chan error, 1)
	go func() { done <- d.Refresh(t.Context()) }()
	<-feed.read
	next, err := store.Patch(t.Context(), s.ID, -1, subscriber.Draft{Name: new("new")})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := d.At(t.Context(), s.ID, next.Version); err != nil {
		t.Fatal(err)
	}
	close(feed.letGo)
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	if got := names(d.Match(anyEvent)); !slices.Equal(got, []string{"new"}) {
		t.Errorf("matched %v", got)
	}
}

func TestAtReadsOnlyWhenItMust(t *testing.T) {
	t.Parallel()
	m, store := newStore(t)
	s := create(t, store, subscriber.Draft{})
	d := subscriber.NewDirectory(m)
	calls := counts(m)
	for range 3 {
		if _, err := d.At(t.Context(), s.ID, s.Version); err != nil {
			t.Fatal(err)
		}
	}
	if n := calls("config"); n != 1 {
		t.Errorf("%d reads of one version", n)
	}
	// A lease at an older version than is known: it was changed since, or Redis was
	// set back to an older state. Memory cannot tell, so it asks; 0 takes any.
	next, err := store.Pause(t.Context(), s.ID)
	if err != nil {
		t.Fatal(err)
	}
	before := calls("config") // the store's own among them
	if at, err := d.At(t.Context(), s.ID, next.Version); err != nil || !at.Paused || calls("config") != before+1 {
		t.Errorf("the next version: %v, %v, %d reads", at, err, calls("config"))
	}
	if at, err := d.At(t.Context(), s.ID, s.Version); err != nil || !at.Paused || calls("config") != before+2 {
		t.Errorf("an older version: %v, %v, %d reads", at, err, calls("config"))
	}
	if _, err := d.At(t.Context(), s.ID, 0); err != nil || calls("config") != before+2 {
		t.Errorf("any version: %v, %d reads", err, calls("config"))
	}
	if _, err := d.At(t.Context(), "sub_nobody", 1); !errors.Is(err, subscriber.ErrGone) {
		t.Errorf("nobody: %v", err)
	}
	m.Before = func(context.Context, string) error { return schedule.ErrUnavailable }
	if _, err := d.At(t.Context(), s.ID, next.Version+1); !errors.Is(err, schedule.ErrUnavailable) {
		t.Errorf("Redis away: %v", err)
	}
	if _, err := d.At(t.Context(), s.ID, next.Version); err != nil {
		t.Errorf("Redis away, version known: %v", err)
	}
}

// TestDirectoryUnderLoad is for the race detector: everything at once.
func TestDirectoryUnderLoad(t *testing.T) {
	t.Parallel()
	m, store := newStore(t)
	d := subscriber.NewDirectory(m)
	var wg sync.WaitGroup
	for w := range 4 {
		wg.Go(func() {
			for i := range 40 {
				s, err := store.Create(t.Context(), subscriber.Draft{URL: new("https://example.com"), Name: new(fmt.Sprint(w, i))})
				if err != nil {
					t.Error(err)
					return
				}
				if err := d.Refresh(t.Context()); err != nil {
					t.Error(err)
				}
				if !slices.ContainsFunc(d.Match(anyEvent), func(m *subscriber.Subscriber) bool { return m.ID == s.ID }) {
					t.Errorf("%s was made before the refresh and does not match", s.ID)
				}
				next, err := store.Pause(t.Context(), s.ID)
				if err != nil {
					t.Error(err)
				}
				if at, err := d.At(t.Context(), s.ID, next.Version); err != nil || !at.Paused {
					t.Errorf("at %d: %v, %v", next.Version, at, err)
				}
				if i%2 == 0 {
					if _, err := store.Delete(t.Context(), s.ID, true); err != nil {
						t.Error(err)
					}
				}
			}
		})
	}
	wg.Wait()
	refresh(t, d)
	if d.Len() != 80 {
		t.Errorf("%d left, want 80", d.Len())
	}
}

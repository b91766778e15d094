package subscriber_test

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fanout/fanout/internal/schedule"
	"github.com/fanout/fanout/internal/subscriber"
	"github.com/fanout/fanout/internal/subscriber/subtest"
)

// TestDeleteReturnsWhenTheLastLeaseEnds, and not before, polling gently.
func TestDeleteReturnsWhenTheLastLeaseEnds(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		m, store := newStore(t)
		s := create(t, store, subscriber.Draft{})
		m.Enqueue(s.ID, 2)
		end1, end2 := m.Lease(s.ID), m.Lease(s.ID)
		calls := counts(m)
		start := time.Now()
		time.AfterFunc(3*time.Second, end1)
		time.AfterFunc(9*time.Second, end2)
		got, err := store.Delete(t.Context(), s.ID, true)
		if took := time.Since(start); err != nil || !got.Done() || took < 9*time.Second || took > 9500*time.Millisecond {
			t.Errorf("%+v, %v after %s", got, err, took)
		}
		if n := calls("cancel pending"); n > 25 {
			t.Errorf("polled %d times in 9 s", n)
		}
	})
}

func TestDeleteStopsWithItsContext(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		m, store := newStore(t)
		s := create(t, store, subscriber.Draft{})
		m.Enqueue(s.ID, 1)
		m.Lease(s.ID)
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
		defer cancel()
		got, err := store.Delete(ctx, s.ID, true)
		if !errors.Is(err, context.DeadlineExceeded) || got.Leases != 1 || got.Done() {
			t.Errorf("%+v, %v", got, err)
		}
		// Without waiting the same delete answers at once.
		start := time.Now()
		if got, err := store.Delete(t.Context(), s.ID, false); err != nil || got.Leases != 1 || time.Since(start) != 0 {
			t.Errorf("%+v, %v after %s", got, err, time.Since(start))
		}
	})
}

// TestDeleteSaysThatItsTimeIsUp though the call that ran into it says only that
// Redis did not answer.
func TestDeleteSaysThatItsTimeIsUp(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		m, store := newStore(t)
		s := create(t, store, subscriber.Draft{})
		m.Enqueue(s.ID, 700)
		batches := 0
		m.Before = func(ctx context.Context, op string) error {
			if op != "cancel pending" {
				return nil
			}
			batches++
			if batches > 1 {
				<-ctx.Done()
				return schedule.ErrUnavailable
			}
			return nil
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		got, err := store.Delete(ctx, s.ID, true)
		if !errors.Is(err, context.DeadlineExceeded) || !errors.Is(err, schedule.ErrUnavailable) {
			t.Error(err)
		}
		if got != (subscriber.DeleteResult{Cancelled: 500, Remaining: 200}) {
			t.Errorf("left: %+v", got)
		}
	})
}

// TestDeleteDoesNotSpin where pending deliveries are left that no call cancels:
// an engine may count the leased ones among them.
func TestDeleteDoesNotSpin(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		m, _ := newStore(t)
		stuck := stuckBackend{Memory: m}
		store := subscriber.New(&stuck, subtest.AnyURL{}, nil, m.Now)
		s := create(t, store, subscriber.Draft{})
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		got, err := store.Delete(ctx, s.ID, true)
		if !errors.Is(err, context.DeadlineExceeded) || got.Remaining != 3 || stuck.asked > 30 {
			t.Errorf("%+v, %v, asked %d times in 10 s", got, err, stuck.asked)
		}
	})
}

// stuckBackend never gets anywhere with its last three deliveries.
type stuckBackend struct {
	*subtest.Memory
	asked int
}

func (b *stuckBackend) CancelPending(context.Context, string, int) (cancelled, remaining, leases int, err error) {
	b.asked++
	if b.asked > 1000 { // time stands still in a bubble that spins
		return 0, 3, 0, errors.New("asked without a pause")
	}
	return 0, 3, 0, nil
}

// TestDeleteTombstonesFirst: whatever fails later, nothing new is sent.
func TestDeleteTombstonesFirst(t *testing.T) {
	t.Parallel()
	m, store := newStore(t)
	s := create(t, store, subscriber.Draft{})
	m.Enqueue(s.ID, 1300)
	m.Before = func(_ context.Context, op string) error {
		if op == "cancel pending" {
			return schedule.ErrUnavailable
		}
		return nil
	}
	if _, err := store.Delete(t.Context(), s.ID, true); !errors.Is(err, schedule.ErrUnavailable) {
		t.Errorf("the cancel failed: %v", err)
	}
	if _, err := store.Get(t.Context(), s.ID); !errors.Is(err, subscriber.ErrNotFound) {
		t.Errorf("get: %v", err)
	}
	// While Redis refuses, the sweep keeps what it found, for its next run.
	if left, err := store.FinishDeletes(t.Context()); left != 1 || !errors.Is(err, schedule.ErrUnavailable) {
		t.Errorf("%d left, %v", left, err)
	}
	m.Before = nil
	if left, err := store.FinishDeletes(t.Context()); left != 0 || err != nil {
		t.Errorf("%d left, %v", left, err)
	}
	if cancelled, remaining, _, err := m.CancelPending(t.Context(), s.ID, 1); cancelled+remaining != 0 || err != nil {
		t.Errorf("%d deliveries were left, %v", cancelled+remaining, err)
	}
}

// TestFinishDeletesReadsDeltas: an idle run costs one read.
func TestFinishDeletesReadsDeltas(t *testing.T) {
	t.Parallel()
	m, store := newStore(t)
	for range 20 {
		create(t, store, subscriber.Draft{})
	}
	if _, err := store.FinishDeletes(t.Context()); err != nil {
		t.Fatal(err)
	}
	calls := counts(m)
	if left, err := store.FinishDeletes(t.Context()); left != 0 || err != nil {
		t.Errorf("%d left, %v", left, err)
	}
	if g, c := calls("generations"), calls("changes"); g != 1 || c != 0 {
		t.Errorf("an idle run made %d and %d reads", g, c)
	}
}

// TestPatchGivesUpOnAContest rather than retry for ever.
func TestPatchGivesUpOnAContest(t *testing.T) {
	t.Parallel()
	m, store := newStore(t)
	s := create(t, store, subscriber.Draft{})
	puts := 0
	m.Before = func(_ context.Context, op string) error {
		if op != "put config" {
			return nil
		}
		puts++
		return schedule.ErrVersion
	}
	if _, err := store.Pause(t.Context(), s.ID); !errors.Is(err, subscriber.ErrVersion) || puts < 2 || puts > 20 {
		t.Errorf("%v after %d tries", err, puts)
	}
	puts = 0
	if _, err := store.Patch(t.Context(), s.ID, s.Version, subscriber.Draft{Name: new("x")}); !errors.Is(err, subscriber.ErrVersion) || puts != 1 {
		t.Errorf("a patch of one version: %v after %d tries", err, puts)
	}
}

// late is a context that is told of its deadline after others are: a socket's own
// timer may run first.
type late struct {
	context.Context

	end time.Time
}

func (l late) Deadline() (time.Time, bool) { return l.end, true }

func TestDeleteSaysThatItsTimeIsUpBeforeItsContextDoes(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		m, store := newStore(t)
		s := create(t, store, subscriber.Draft{})
		ctx, cancel := context.WithTimeout(t.Context(), time.Second+time.Millisecond)
		defer cancel()
		m.Before = func(_ context.Context, op string) error {
			if op == "cancel pending" {
				time.Sleep(time.Second) // until the socket's deadline
				return schedule.ErrUnavailable
			}
			return nil
		}
		_, err := store.Delete(late{ctx, time.Now().Add(time.Second)}, s.ID, true)
		if !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("got %v", err)
		}
	})
}

// TestDeleteKeepsTheOwner, of one that this process has no key for too.
func TestDeleteKeepsTheOwner(t *testing.T) {
	t.Parallel()
	m, store := newStore(t)
	sealing := subscriber.New(m, subtest.AnyURL{}, nil, m.Now, subscriber.WithKeyring(subtest.Keyring(t, "k1")))
	plain, sealed := create(t, store, subscriber.Draft{Account: new("acme")}), create(t, sealing, subscriber.Draft{Account: new("acme")})
	left := create(t, store, subscriber.Draft{Account: new("acme")})
	for range 2 {
		for _, id := range []string{plain.ID, sealed.ID} {
			if _, err := store.Delete(t.Context(), id, true); err != nil {
				t.Fatal(err)
			}
		}
	}
	owners, err := store.Owners(t.Context(), []string{plain.ID, left.ID, sealed.ID, "sub_never"})
	if want := []string{"acme", "", "acme", ""}; err != nil || !slices.Equal(owners, want) {
		t.Errorf("owners %q, %v; want %q", owners, err, want)
	}
}

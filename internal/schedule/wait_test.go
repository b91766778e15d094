package schedule_test

import (
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/fanout/fanout/internal/schedule"
	"github.com/fanout/fanout/test/redistest"
)

func (w *world) accept(id string) (schedule.Accepted, error) {
	return w.Accept(w.ctx, schedule.NewEvent{ID: id, BodyHash: "h", Body: []byte("{}")})
}

// With WaitReplicas, what no replica has is not accepted, and neither is its
// repetition; once a replica has it, the repetition is.
func TestAcceptWaitsForReplicas(t *testing.T) {
	t.Parallel()
	primary := redistest.Server(t)
	replica := primary.Replica("")
	patient := newWorld(t, primary.Client(), schedule.Options{WaitReplicas: 1, WaitTimeout: 2 * time.Second})
	w := newWorld(t, primary.Client(), schedule.Options{WaitReplicas: 1, WaitTimeout: 100 * time.Millisecond})
	a, err := patient.accept("e1")
	w.ok(err)
	if a.Duplicate {
		t.Fatalf("first accept: %+v", a)
	}
	replica.Stop()
	for range 2 {
		if a, err := w.accept("e2"); !errors.Is(err, schedule.ErrUnavailable) {
			t.Fatalf("accepted without a replica: %+v, %v", a, err)
		}
	}
	w.ok(w.rdb.ScriptFlush(w.ctx).Err())
	if a, err := w.accept("e3"); !errors.Is(err, schedule.ErrUnavailable) {
		t.Fatalf("accepted without a replica by a script sent in full: %+v, %v", a, err)
	}
	replica.Cont()
	a, err = patient.accept("e2")
	w.ok(err)
	if !a.Duplicate {
		t.Fatalf("accepted again: %+v", a)
	}
}

// Without the replicas that every event has to wait for, Redis is not ready.
func TestNotReadyWithoutReplicas(t *testing.T) {
	t.Parallel()
	primary := redistest.Server(t)
	w := newWorld(t, primary.Client(), schedule.Options{WaitReplicas: 1, WaitTimeout: 100 * time.Millisecond})
	if err := w.Ready(w.ctx); !errors.Is(err, schedule.ErrRefused) {
		t.Fatalf("ready without a replica: %v", err)
	}
	primary.Replica("")
	w.ok(w.Ready(w.ctx))
}

// What a failover loses: with WaitReplicas nothing that was accepted, though the
// link to the replica had stalled; without, what was accepted since.
func TestFailover(t *testing.T) {
	t.Parallel()
	for _, wait := range []int{0, 1} {
		t.Run(fmt.Sprint("wait=", wait), func(t *testing.T) {
			t.Parallel()
			primary := redistest.Server(t, redistest.AOFAlways())
			link := newLink(t, primary.Addr())
			replica := primary.Replica(link.addr)
			// Patient while the link works, so that a slow machine refuses nothing.
			w := newWorld(t, primary.Client(), schedule.Options{WaitReplicas: wait, WaitTimeout: 2 * time.Second})
			var accepted []string
			const events = 40
			for i := range events {
				if i == events/2 {
					link.stall()
					w = newWorld(t, primary.Client(), schedule.Options{WaitReplicas: wait, WaitTimeout: 20 * time.Millisecond})
				}
				id := fmt.Sprint("e", i)
				switch _, err := w.accept(id); {
				case err == nil:
					accepted = append(accepted, id)
				case !errors.Is(err, schedule.ErrUnavailable):
					t.Fatal(err)
				}
			}
			primary.Kill9()
			replica.Promote()
			w = newWorld(t, replica.Client(), schedule.Options{})
			lost := 0
			for _, id := range accepted {
				if _, err := w.Event(w.ctx, id); errors.Is(err, schedule.ErrNotFound) {
					lost++
				} else {
					w.ok(err)
				}
			}
			t.Logf("wait_replicas=%d accepted=%d lost=%d", wait, len(accepted), lost)
			if wait > 0 && (lost > 0 || len(accepted) < events/2) {
				t.Errorf("%d of %d accepted events were lost in spite of WAIT", lost, len(accepted))
			}
			if wait == 0 && lost == 0 {
				t.Error("nothing was lost without WAIT: the test does not stall the link")
			}
		})
	}
}

// link is a TCP proxy that can stop passing bytes on, as a network does.
type link struct {
	addr string
	mu   sync.Mutex // held while it stalls
	once sync.Once
}

func newLink(t *testing.T, target string) *link {
	t.Helper()
	ln, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	l := &link{addr: ln.Addr().String()}
	var all sync.WaitGroup
	ends := make(chan net.Conn, 16)
	all.Go(func() {
		for {
			near, err := ln.Accept()
			if err != nil {
				close(ends)
				return
			}
			far, err := new(net.Dialer).DialContext(t.Context(), "tcp", target)
			if err != nil {
				_ = near.Close()
				continue
			}
			ends <- near
			ends <- far
			all.Go(func() { l.pass(near, far) })
			all.Go(func() { l.pass(far, near) })
		}
	})
	t.Cleanup(func() {
		_ = ln.Close()
		for c := range ends {
			_ = c.Close()
		}
		l.stall()
		l.mu.Unlock()
		all.Wait()
	})
	return l
}

// stall is for ever.
func (l *link) stall() { l.once.Do(l.mu.Lock) }

func (l *link) pass(to io.WriteCloser, from io.Reader) {
	defer to.Close()
	buf := make([]byte, 32<<10)
	for {
		n, err := from.Read(buf)
		if err != nil {
			return
		}
		l.mu.Lock()
		_, err = to.Write(buf[:n])
		l.mu.Unlock()
		if err != nil {
			return
		}
	}
}

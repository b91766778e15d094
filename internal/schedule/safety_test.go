package schedule_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/fanout/fanout/internal/schedule"
	"github.com/fanout/fanout/test/redistest"
)

func TestReadySaysWhatToSet(t *testing.T) {
	t.Parallel()
	w := newWorld(t, redistest.Server(t).Client(), schedule.Options{})
	w.ok(w.Ready(w.ctx))
	set := func(name, value string) { w.Helper(); w.ok(w.rdb.ConfigSet(w.ctx, name, value).Err()) }
	for _, c := range []struct{ name, bad, good, says string }{
		{"maxmemory-policy", "allkeys-lru", "noeviction", "set it to noeviction"},
		{"appendonly", "no", "yes", "set it to yes"},
	} {
		set(c.name, c.bad)
		err := w.Ready(w.ctx)
		if !errors.Is(err, schedule.ErrUnsafe) || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s %s: %v", c.name, c.bad, err)
		}
		set(c.name, c.good)
		w.ok(w.Ready(w.ctx))
	}
	w.ok(w.rdb.Do(w.ctx, "REPLICAOF", "127.0.0.1", "1").Err())
	if err := w.Ready(w.ctx); !errors.Is(err, schedule.ErrUnsafe) || !strings.Contains(err.Error(), "primary") {
		t.Errorf("a replica: %v", err)
	}
	w.ok(w.rdb.Do(w.ctx, "REPLICAOF", "NO", "ONE").Err())

	set("appendonly", "no")
	allowed := newWorld(t, w.rdb, schedule.Options{AllowUnsafe: true})
	w.ok(allowed.Ready(w.ctx))
}

// Redis answers, and takes nothing: that is not ready.
func TestNotReadyWhenNothingIsTaken(t *testing.T) {
	t.Parallel()
	w := newWorld(t, redistest.Server(t).Client(), schedule.Options{})
	allowed := newWorld(t, w.rdb, schedule.Options{AllowUnsafe: true})
	for _, c := range []struct {
		setting, bad, good, says string
		want                     error
	}{
		{"maxmemory", "1", "0", "raise maxmemory", schedule.ErrFull},
		{"min-replicas-to-write", "1", "0", "NOREPLICAS", schedule.ErrUnavailable},
	} {
		w.ok(w.rdb.ConfigSet(w.ctx, c.setting, c.bad).Err())
		for _, e := range []*world{w, allowed} {
			if err := e.Ready(w.ctx); !errors.Is(err, c.want) || !strings.Contains(err.Error(), c.says) {
				t.Errorf("%s %s: %v", c.setting, c.bad, err)
			}
		}
		w.ok(w.rdb.ConfigSet(w.ctx, c.setting, c.good).Err())
		w.ok(w.Ready(w.ctx))
	}
	if l := w.ledger(); l != (schedule.Ledger{}) {
		t.Errorf("asking left a trace in the ledger: %+v", l)
	}
}

// A process that starts while Redis is full or read-only has work to do: it drains
// what is there. Only another layout, or a refused login, ends it.
func TestOpenWhenNothingIsTaken(t *testing.T) {
	t.Parallel()
	for setting, bad := range map[string]string{"maxmemory": "1", "min-replicas-to-write": "1"} {
		w := newWorld(t, redistest.Server(t).Client(), schedule.Options{})
		w.subscribe("s1", 1)
		w.post("e1", "s1")
		w.ok(w.rdb.ConfigSet(w.ctx, setting, bad).Err())
		again := newWorld(t, w.rdb, schedule.Options{})
		if setting == "maxmemory" {
			again.settle(schedule.Applied, delivered(again.one("w")))
		}

		empty := redistest.Server(t).Client()
		w.ok(empty.ConfigSet(w.ctx, setting, bad).Err())
		fresh := newWorld(t, empty, schedule.Options{})
		if _, err := fresh.Accept(w.ctx, schedule.NewEvent{ID: "e1"}); !errors.Is(err, schedule.ErrFull) && !errors.Is(err, schedule.ErrRefused) {
			t.Errorf("%s %s: accept: %v", setting, bad, err)
		}
		w.ok(empty.ConfigSet(w.ctx, setting, "0").Err())
		fresh.subscribe("s1", 1)
		fresh.post("e1", "s1")
	}
	locked := redistest.Server(t, redistest.Password("secret"))
	_, err := schedule.Open(t.Context(), redistest.Client(t, locked.Addr()), schedule.Options{})
	if err == nil || !strings.Contains(err.Error(), "--redis-password-file") {
		t.Errorf("without the password: %v", err)
	}
}

// Redis was emptied under a running process, and another one claimed it with
// another number of partitions: the first must not go on writing where nobody looks.
func TestLayoutIsCheckedAgain(t *testing.T) {
	t.Parallel()
	w := newWorld(t, redistest.Server(t).Client(), schedule.Options{Partitions: 4})
	w.ok(w.rdb.FlushAll(w.ctx).Err())
	newWorld(t, w.rdb, schedule.Options{Partitions: 8})
	if err := w.Ready(w.ctx); !errors.Is(err, schedule.ErrLayout) {
		t.Fatalf("ready: %v", err)
	}
	if _, err := w.Accept(w.ctx, schedule.NewEvent{ID: "e1"}); !errors.Is(err, schedule.ErrLayout) {
		t.Fatalf("accept: %v", err)
	}
}

// Redis without the data that it had balances, and is within every SLO. It must not
// pass for one in which there is nothing to do.
func TestEmptiedRedisIsNoticed(t *testing.T) {
	t.Parallel()
	w := newWorld(t, redistest.Server(t).Client(), schedule.Options{})
	w.ok(w.Ready(w.ctx))
	w.ok(w.rdb.FlushAll(w.ctx).Err())
	for range 2 { // it does not get used to it
		if err := w.Ready(w.ctx); !errors.Is(err, schedule.ErrLayout) || !strings.Contains(err.Error(), "is gone") {
			t.Fatalf("ready after the data went: %v", err)
		}
		if _, err := w.Accept(w.ctx, schedule.NewEvent{ID: "e1"}); !errors.Is(err, schedule.ErrLayout) {
			t.Fatalf("accept after the data went: %v", err)
		}
	}
	anew := newWorld(t, w.rdb, schedule.Options{})
	w.ok(anew.Ready(w.ctx)) // a process that starts now never saw the other data
	if err := w.Ready(w.ctx); !errors.Is(err, schedule.ErrLayout) {
		t.Fatalf("ready once another began anew: %v", err)
	}
}

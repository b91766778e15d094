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

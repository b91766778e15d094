package audit_test

import (
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/fanout/fanout/internal/delivery"
	"github.com/fanout/fanout/internal/schedule"
	"github.com/fanout/fanout/test/audit"
	"github.com/fanout/fanout/test/redistest"
)

// bench is an engine with a subscriber, and one delivery in each state.
type bench struct {
	*testing.T

	rdb    *redis.Client
	prefix string // of the subscriber's partition
	ids    map[delivery.State]string
}

const sub = "sub_one"

func (b *bench) ok(err error) {
	b.Helper()
	if err != nil {
		b.Fatal(err)
	}
}

func setup(t *testing.T) *bench {
	t.Helper()
	b := &bench{T: t, rdb: redistest.Server(t).Client(), ids: map[delivery.State]string{}}
	ctx := t.Context()
	e, err := schedule.Open(ctx, b.rdb, schedule.Options{Partitions: 1, InitialCap: 3})
	b.ok(err)
	_, err = e.PutConfig(ctx, sub, 0, []byte("{}"), schedule.Terms{Class: "standard", MaxInFlight: 3, LeaseTime: time.Minute}, schedule.Edited)
	b.ok(err)
	states := []delivery.State{delivery.Delivered, delivery.Dead, delivery.Leased, delivery.Scheduled}
	for i, state := range states {
		id := "evt_" + string(state)
		acc, err := e.Accept(ctx, schedule.NewEvent{
			ID: id, BodyHash: "h", Body: []byte("{}"), Targets: []schedule.Target{{SubscriberID: sub, MaxAge: time.Hour}},
		})
		b.ok(err)
		b.ok(e.Enqueue(ctx, id, acc.At, e.ExpandBy(acc.At), 0, []schedule.Target{{SubscriberID: sub, MaxAge: time.Hour}}))
		_, err = e.Strike(ctx, id, 0)
		b.ok(err)
		b.ids[state] = delivery.NewID(id, sub)
		if state == delivery.Scheduled {
			break
		}
		got, err := e.Lease(ctx, []schedule.LeaseRequest{
			{Worker: "w", Seq: int64(i + 1), Rooms: schedule.Rooms{Total: 1, Fresh: 1, Retry: 1, Redrive: 1, Slow: 1}},
		})
		b.ok(err)
		if state == delivery.Leased {
			continue
		}
		v := schedule.Verdict{ID: b.ids[state], Fence: got[0].Leased[0].Fence(), Decision: delivery.Decision{Next: state}, Outcome: delivery.OK}
		if state == delivery.Dead {
			v.Body, v.Reason, v.Attempt = &schedule.Body{Bytes: []byte("{}")}, delivery.Exhausted, []byte("{}")
			v.Outcome = delivery.HTTP422
		}
		_, err = e.Settle(ctx, 0, []schedule.Verdict{v})
		b.ok(err)
	}
	keys, err := b.rdb.Keys(ctx, "*:ledger").Result()
	b.ok(err)
	b.prefix = strings.TrimSuffix(keys[0], "ledger")
	return b
}

func (b *bench) faults() []string {
	b.Helper()
	faults, err := audit.Check(b.Context(), b.rdb)
	b.ok(err)
	return faults
}

func TestSoundStateHasNoFaults(t *testing.T) {
	t.Parallel()
	b := setup(t)
	if faults := b.faults(); len(faults) > 0 {
		t.Fatalf("faults in a sound state:\n%s", strings.Join(faults, "\n"))
	}
	s, err := audit.Read(t.Context(), b.rdb)
	b.ok(err)
	want := audit.Ledger{Accepted: 4, Pending: 2, Delivered: 1, Dead: 1}
	if s.Ledger != want || s.Leases != 1 || s.Open != 0 || len(s.Events) != 4 || len(s.Subscribers) != 1 {
		t.Errorf("ledger %+v, leases %d, open %d, events %d, subscribers %d",
			s.Ledger, s.Leases, s.Open, len(s.Events), len(s.Subscribers))
	}
	for state, id := range b.ids {
		if s.Deliveries[id].State != state {
			t.Errorf("%s is %s, want %s", id, s.Deliveries[id].State, state)
		}
	}
}

// Each way to damage the state is seen, and named.
func TestDamageIsSeen(t *testing.T) {
	t.Parallel()
	b := setup(t)
	id := func(s delivery.State) string { return b.ids[s] }
	run, err := b.rdb.HGet(b.Context(), b.prefix+"sub:"+sub, "run").Result()
	b.ok(err)
	for _, c := range []struct {
		name, says string
		do         func(p redis.Pipeliner)
	}{
		{"left its lane", "is missing from", func(p redis.Pipeliner) { p.ZRem(b.Context(), b.prefix+"q:f:"+sub, id(delivery.Scheduled)) }},
		{"stands in two places", "and stands in", func(p redis.Pipeliner) {
			p.ZAdd(b.Context(), b.prefix+"q:r:"+sub, redis.Z{Member: id(delivery.Delivered)})
		}},
		{"no record", "has no record", func(p redis.Pipeliner) { p.Del(b.Context(), b.prefix+"d:"+id(delivery.Scheduled)) }},
		{"dead letter not listed", "is missing from", func(p redis.Pipeliner) { p.ZRem(b.Context(), b.prefix+"dead", id(delivery.Dead)) }},
		{"payload not pinned", "not pinned", func(p redis.Pipeliner) { p.Del(b.Context(), b.prefix+"pin:evt_dead") }},
		{"payload gone", "has no payload", func(p redis.Pipeliner) {
			p.Del(b.Context(), strings.Replace(b.prefix, "{fo:", "{fo:e", 1)+"body:evt_scheduled")
		}},
		{"ledger off by one", "does not balance", func(p redis.Pipeliner) { p.HIncrBy(b.Context(), b.prefix+"ledger", "delivered", 1) }},
		{"ledger balances and lies", "its records say", func(p redis.Pipeliner) {
			p.HIncrBy(b.Context(), b.prefix+"ledger", "delivered", 1)
			p.HIncrBy(b.Context(), b.prefix+"ledger", "dead", -1)
		}},
		{"leaked lease", "counts 2 leases, 1 are open", func(p redis.Pipeliner) {
			p.HSet(b.Context(), b.prefix+"sub:"+sub, "run", "2"+strings.TrimPrefix(run, "1"))
		}},
		{"nobody's turn", "lane f: its place is y, in ready is false", func(p redis.Pipeliner) {
			p.ZRem(b.Context(), b.prefix+"ready:f", sub)
		}},
		{"in no age gauge", "in the ages e is false", func(p redis.Pipeliner) {
			p.ZRem(b.Context(), b.prefix+"age:e:standard:f", sub)
		}},
		{"a place that does not follow", "place l, waits true, does not follow", func(p redis.Pipeliner) {
			p.HSet(b.Context(), b.prefix+"sub:"+sub, "run", strings.Replace(run, "yy", "yl", 1))
			p.ZRem(b.Context(), b.prefix+"ready:f", sub)
			p.ZRem(b.Context(), b.prefix+"age:e:standard:f", sub)
			p.ZAdd(b.Context(), b.prefix+"age:l:standard:f", redis.Z{Member: sub})
		}},
		{"on hold and not listed", "and is not in held", func(p redis.Pipeliner) {
			p.HSet(b.Context(), b.prefix+"sub:"+sub, "guard", "0 0 0 0 0 0 - - 0 5 0 0")
		}},
		{"held deliveries miscounted", "counts 7 deliveries as held", func(p redis.Pipeliner) {
			p.HIncrBy(b.Context(), b.prefix+"ledger", "held", 7)
		}},
		{"damaged state", "damaged state", func(p redis.Pipeliner) {
			p.HSet(b.Context(), b.prefix+"sub:"+sub, "run", "x"+run)
		}},
		{"delivery lost", "has no delivery for", func(p redis.Pipeliner) { p.Del(b.Context(), b.prefix+"d:"+id(delivery.Delivered)) }},
		{"damaged record", "damaged record", func(p redis.Pipeliner) { p.Set(b.Context(), b.prefix+"d:"+id(delivery.Dead), "x", 0) }},
	} {
		before := dump(b)
		_, err := b.rdb.Pipelined(t.Context(), func(p redis.Pipeliner) error { c.do(p); return nil })
		b.ok(err)
		if all := strings.Join(b.faults(), "\n"); !strings.Contains(all, c.says) {
			t.Errorf("%s: faults are %q, want one that says %q", c.name, all, c.says)
		}
		restore(b, before)
	}
	if faults := b.faults(); len(faults) > 0 {
		t.Fatalf("the test did not repair what it broke: %v", faults)
	}
}

func dump(b *bench) map[string]string {
	b.Helper()
	keys, err := b.rdb.Keys(b.Context(), "*").Result()
	b.ok(err)
	all := map[string]string{}
	for _, k := range keys {
		all[k], err = b.rdb.Dump(b.Context(), k).Result()
		b.ok(err)
	}
	return all
}

func restore(b *bench, all map[string]string) {
	b.Helper()
	b.ok(b.rdb.FlushAll(b.Context()).Err())
	for k, v := range all {
		b.ok(b.rdb.Restore(b.Context(), k, 0, v).Err())
	}
}

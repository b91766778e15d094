package schedule_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/redis/go-redis/v9"

	"github.com/fanout/fanout/internal/delivery"
	"github.com/fanout/fanout/internal/schedule"
)

// inspect walks once around, and returns what it found.
func (w *world) inspect() (found []schedule.Finding) {
	w.Helper()
	from := ""
	for range 1000 {
		in, err := w.Inspect(w.ctx, from)
		w.ok(err)
		found = append(found, in.Found...)
		if from = in.Next; from == "" {
			return found
		}
	}
	w.Fatal("the walk does not end")
	return nil
}

// Each kind of gap is made by hand, and found.
func TestInspectFindsGaps(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name string
		gap  schedule.Gap
		make func(w *world, prefix string, ids map[delivery.State]string) (id string)
	}{
		{"record gone", schedule.GapNoRecord, func(w *world, p string, ids map[delivery.State]string) string {
			w.ok(w.rdb.Del(w.ctx, p+"d:"+ids[delivery.Scheduled]).Err())
			return ids[delivery.Scheduled]
		}},
		{"record of a leased one gone", schedule.GapNoRecord, func(w *world, p string, ids map[delivery.State]string) string {
			w.ok(w.rdb.Del(w.ctx, p+"d:"+ids[delivery.Leased]).Err())
			return ids[delivery.Leased]
		}},
		{"record damaged", schedule.GapNoRecord, func(w *world, p string, ids map[delivery.State]string) string {
			w.ok(w.rdb.Set(w.ctx, p+"d:"+ids[delivery.Dead], "x", 0).Err())
			return ids[delivery.Dead]
		}},
		{"in no lane", schedule.GapNoPlace, func(w *world, p string, ids map[delivery.State]string) string {
			w.ok(w.rdb.ZRem(w.ctx, p+"q:f:s1", ids[delivery.Scheduled]).Err())
			return ids[delivery.Scheduled]
		}},
		{"in no list of the dead", schedule.GapNoPlace, func(w *world, p string, ids map[delivery.State]string) string {
			w.ok(w.rdb.ZRem(w.ctx, p+"dead:s1", ids[delivery.Dead]).Err())
			return ids[delivery.Dead]
		}},
		{"no lease", schedule.GapNoLease, func(w *world, p string, ids map[delivery.State]string) string {
			w.ok(w.rdb.ZRem(w.ctx, p+"leases", ids[delivery.Leased]).Err())
			return ids[delivery.Leased]
		}},
		{"not counted as pending", schedule.GapNotPending, func(w *world, p string, ids map[delivery.State]string) string {
			w.ok(w.rdb.ZRem(w.ctx, p+"pend:s1", ids[delivery.Leased]).Err())
			return ids[delivery.Leased]
		}},
		{"delivered and in a lane", schedule.GapStray, func(w *world, p string, ids map[delivery.State]string) string {
			w.ok(w.rdb.ZAdd(w.ctx, p+"q:r:s1", redis.Z{Score: 1, Member: ids[delivery.Delivered]}).Err())
			return ids[delivery.Delivered]
		}},
		{"scheduled and dead", schedule.GapStray, func(w *world, p string, ids map[delivery.State]string) string {
			w.ok(w.rdb.ZAdd(w.ctx, p+"dead", redis.Z{Score: 1, Member: ids[delivery.Scheduled]}).Err())
			return ids[delivery.Scheduled]
		}},
		{"dead and leased", schedule.GapStray, func(w *world, p string, ids map[delivery.State]string) string {
			w.ok(w.rdb.ZAdd(w.ctx, p+"leases", redis.Z{Score: 1, Member: ids[delivery.Dead]}).Err())
			return ids[delivery.Dead]
		}},
		{"a cohort lost it", schedule.GapClaim, func(w *world, p string, ids map[delivery.State]string) string {
			_, err := w.Claim(w.ctx, "rdv_1", []string{ids[delivery.Dead]})
			w.ok(err)
			if found := w.inspect(); len(found) != 0 {
				w.Fatalf("found though all is well: %v", found)
			}
			w.ok(w.rdb.ZRem(w.ctx, p+"cohort:rdv_1", ids[delivery.Dead]).Err())
			return ids[delivery.Dead]
		}},
		{"released, and its cohort does not know", schedule.GapClaim, func(w *world, p string, ids map[delivery.State]string) string {
			_, err := w.Claim(w.ctx, "rdv_1", []string{ids[delivery.Dead]})
			w.ok(err)
			_, err = w.Redrive(w.ctx, "rdv_1", 2, day, []string{ids[delivery.Dead]})
			w.ok(err)
			if found := w.inspect(); len(found) != 0 {
				w.Fatalf("found though all is well: %v", found)
			}
			w.ok(w.rdb.ZRem(w.ctx, p+"out:rdv_1", ids[delivery.Dead]).Err())
			return ids[delivery.Dead]
		}},
		{"claimed by none", schedule.GapClaim, func(w *world, p string, ids map[delivery.State]string) string {
			w.ok(w.rdb.HSet(w.ctx, p+"claims", ids[delivery.Dead], "rdv_2").Err())
			w.ok(w.rdb.ZAdd(w.ctx, p+"cohort:rdv_2", redis.Z{Score: 1, Member: ids[delivery.Dead]}).Err())
			return ids[delivery.Dead]
		}},
		{"count of leases", schedule.GapLeases, func(w *world, p string, _ map[delivery.State]string) string {
			run, err := w.rdb.HGet(w.ctx, p+"sub:s1", "run").Result()
			w.ok(err)
			w.ok(w.rdb.HSet(w.ctx, p+"sub:s1", "run", "7"+run[1:]).Err())
			return "s1"
		}},
		{"ledger", schedule.GapLedger, func(w *world, p string, _ map[delivery.State]string) string {
			w.ok(w.rdb.HIncrBy(w.ctx, p+"ledger", "delivered", 1).Err())
			return p
		}},
		{"a delivery was never made", schedule.GapUnexpanded, func(w *world, p string, ids map[delivery.State]string) string {
			w.ok(w.rdb.Del(w.ctx, p+"d:"+ids[delivery.Delivered]).Err())
			return "e3"
		}},
		{"late", schedule.GapLate, func(w *world, _ string, _ map[delivery.State]string) string {
			w.ok(w.rdb.ZAdd(w.ctx, schedule.EventPrefix(w.Engine, "e9")+"late", redis.Z{Score: 1, Member: "e9"}).Err())
			return "e9"
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			contract(t, schedule.Options{}, func(_ *testing.T, w *world) {
				w.freeze()
				w.subscribe("s1", 100)
				w.subscribe("s2", 100)
				ids := map[delivery.State]string{}
				for i, end := range []func(schedule.Leased) schedule.Verdict{
					delivered, func(l schedule.Leased) schedule.Verdict { return dead(l, "{}") },
				} {
					id := w.post(fmt.Sprint("e", 3+i), "s1")[0]
					w.settle(schedule.Applied, end(w.one("w1")))
					ids[w.get(id).State] = id
				}
				ids[delivery.Leased] = w.post("e1", "s1")[0]
				w.one("w1")
				ids[delivery.Scheduled] = w.post("e2", "s1")[0]
				w.advance(5 * time.Minute)
				if found := w.inspect(); len(found) != 0 {
					w.Fatalf("found though all is well: %v", found)
				}
				want := schedule.Finding{Gap: c.gap, ID: c.make(w, schedule.PartitionPrefix(w.Engine, 0), ids)}
				if found := w.inspect(); !slices.Contains(found, want) {
					w.Fatalf("found %v, not %v", found, want)
				}
			})
		})
	}
}

// What an operator discarded is no gap.
func TestInspectKnowsOfDiscards(t *testing.T) {
	t.Parallel()
	contract(t, schedule.Options{}, func(_ *testing.T, w *world) {
		w.freeze()
		w.subscribe("s1", 100)
		id := w.die("e1")
		got, err := w.Discard(w.ctx, []string{id})
		w.ok(err)
		if diff := cmp.Diff([]schedule.ClaimResult{schedule.Discarded}, got); diff != "" {
			w.Fatal(diff)
		}
		w.advance(5 * time.Minute)
		if found := w.inspect(); len(found) != 0 {
			w.Fatalf("found %v", found)
		}
	})
}

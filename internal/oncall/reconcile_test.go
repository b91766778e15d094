package oncall

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/fanout/fanout/internal/schedule"
)

// walkerFunc is a walk of so many steps.
type walkerFunc func(from string) (schedule.Inspection, error)

func (f walkerFunc) Inspect(_ context.Context, from string) (schedule.Inspection, error) {
	return f(from)
}

// What a round finds is counted until a whole later one finds it no more; a step that
// fails is taken again, and loses nothing.
func TestReconcilerCountsByRound(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		gap, failures := true, 2
		w := walkerFunc(func(from string) (schedule.Inspection, error) {
			switch from {
			case "":
				return schedule.Inspection{Looked: 10, Next: "2"}, nil
			case "2":
				failures--
				if failures >= 0 {
					return schedule.Inspection{}, errors.New("away")
				}
				in := schedule.Inspection{Looked: 5, Next: "3"}
				if gap {
					in.Found = []schedule.Finding{{Gap: schedule.GapNoPlace, ID: "dlv_1"}}
				}
				return in, nil
			}
			return schedule.Inspection{Looked: 1}, nil
		})
		reg := prometheus.NewRegistry()
		r, err := NewReconciler(w, nil, reg)
		if err != nil {
			t.Fatal(err)
		}
		ctx, stop := context.WithCancel(t.Context())
		defer stop()
		done := make(chan error, 1)
		go func() { done <- r.Run(ctx) }()
		at := func(d time.Duration, gaps, looked int64) {
			t.Helper()
			time.Sleep(d)
			synctest.Wait()
			round, _ := r.Last()
			if round.Gaps[schedule.GapNoPlace] != gaps || round.Looked != looked {
				t.Errorf("%+v, want %d gaps among %d", round, gaps, looked)
			}
		}
		at(500*time.Millisecond, 0, 0)
		at(10*time.Second, 1, 16)
		if n := testutil.CollectAndCount(r, "fanout_audit_gaps"); n != len(schedule.Gaps) {
			t.Errorf("%d series, want one of each kind", n)
		}
		err = testutil.CollectAndCompare(r, strings.NewReader(`
# HELP fanout_audit_looked Keys and places that the last round of the reconciliation looked at.
# TYPE fanout_audit_looked gauge
fanout_audit_looked 16
`), "fanout_audit_looked")
		if err != nil {
			t.Error(err)
		}
		gap = false
		at(30*time.Second, 1, 16)
		at(2*time.Minute, 0, 16)
		stop()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

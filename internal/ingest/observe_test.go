package ingest

import (
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/prometheus/common/expfmt"

	"github.com/fanout/fanout/internal/schedule"
)

func TestMetrics(t *testing.T) {
	t.Parallel()
	b := setup(t, 3, Options{MaxFanout: 3})
	if n, err := testutil.GatherAndCount(b.reg, "fanout_ingest_total"); err != nil || n != len(results) {
		t.Errorf("%d labels before the first post, want %d (%v)", n, len(results), err)
	}
	if problems, err := testutil.GatherAndLint(b.reg); err != nil || len(problems) > 0 {
		t.Errorf("lint: %v %v", problems, err)
	}
	post := func(edit func(*Post)) {
		p := validPost()
		edit(&p)
		_, _ = b.Submit(t.Context(), p) // what it returns is told by the metric
	}
	fail := func(err error) {
		b.store.setFaults(func(int, string) mishap { return mishap{before: err} })
		post(func(p *Post) { p.ID = "" })
		b.store.setFaults(nil)
	}
	post(func(*Post) {})
	post(func(*Post) {})
	post(func(p *Post) { p.ShipmentID = "other" })
	post(func(p *Post) { p.ShipmentID = "" })
	fail(schedule.ErrUnavailable)
	fail(schedule.ErrFull)
	b.dir.set(subs(4))
	post(func(p *Post) { p.ID = "" })
	for _, r := range results {
		if n := testutil.ToFloat64(b.metrics.total.WithLabelValues(r)); n != 1 {
			t.Errorf("%s is %v, want 1", r, n)
		}
	}
	const want = "fanout_ingest_duration_seconds_count 7"
	text, err := testutil.CollectAndFormat(b.metrics.duration, expfmt.TypeTextPlain, "fanout_ingest_duration_seconds")
	if err != nil || !strings.Contains(string(text), want) {
		t.Errorf("no %q in %s (%v)", want, text, err)
	}
}

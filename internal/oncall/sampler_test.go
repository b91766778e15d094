package oncall

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fanout/fanout/internal/schedule"
)

func TestNewRefuses(t *testing.T) {
	t.Parallel()
	one := map[string]time.Duration{"standard": time.Second}
	for name, opts := range map[string]Options{
		"no class":     {},
		"no SLO":       {Classes: map[string]time.Duration{"standard": 0}},
		"the others":   {Classes: map[string]time.Duration{schedule.OtherClass: time.Second}},
		"no name":      {Classes: map[string]time.Duration{"": time.Second}},
		"too often":    {Classes: one, Every: time.Millisecond},
		"too seldom":   {Classes: one, Every: time.Hour},
		"back in time": {Classes: one, Every: -time.Second},
	} {
		if _, err := New(&fakeSource{}, opts); !errors.Is(err, ErrOptions) {
			t.Errorf("%s: got %v, want ErrOptions", name, err)
		}
	}
}

// An idle service is looked at once a second, and nothing else is asked of Redis.
func TestRunIdleIsCheap(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		source := &fakeSource{sample: calm(), dead: deadLetters()}
		o := newOnCall(t, source, Options{})
		stop := run(t, o)
		time.Sleep(time.Minute - time.Millisecond)
		synctest.Wait()
		if samples, lists := source.counts(); samples != 60 || lists != 1 {
			t.Errorf("an idle minute took %d samples and %d lists of dead letters, want 60 and 1", samples, lists)
		}
		stop()
	})
}

// The list of failures follows the dead, also when reading it failed at first and
// when one was redriven while another died.
func TestRunFollowsTheDead(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		source := &fakeSource{sample: calm(), deadErr: errDown}
		o := newOnCall(t, source, Options{})
		stop := run(t, o)
		shown := func() int {
			synctest.Wait()
			s, ok := o.Latest()
			if !ok {
				t.Fatal("no sample, although only the list of failures is not there")
			}
			return len(s.Failures)
		}
		if n := shown(); n != 0 {
			t.Errorf("%d failures shown, but none could be read", n)
		}
		source.set(func(f *fakeSource) { f.dead, f.deadErr = deadLetters()[:1], nil })
		time.Sleep(time.Second)
		if n := shown(); n != 1 {
			t.Errorf("%d failures shown after the list came back, want 1", n)
		}
		source.set(func(f *fakeSource) { f.dead = deadLetters(); f.sample.Ledger.Dead++ })
		time.Sleep(time.Second)
		if n := shown(); n != 3 {
			t.Errorf("%d failures shown after two more died, want 3", n)
		}
		source.set(func(f *fakeSource) { f.dead = nil; f.sample.Ledger.Delivered += 7 })
		time.Sleep(failuresEvery + time.Second)
		source.set(func(f *fakeSource) { f.sample.Ledger.Delivered++ })
		time.Sleep(time.Second)
		if n := shown(); n != 0 {
			t.Errorf("%d failures shown, want 0: the list is stale while the ledger moves", n)
		}
		stop()
	})
}

// A Redis that is away leaves the last snapshot, which says how old it is; the
// loop goes on and finds the way back by itself. The log has one line for each
// change, not one a second.
func TestRunOutlivesRedis(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		source := &fakeSource{sample: late()}
		o := newOnCall(t, source, Options{Logger: slog.New(slog.NewTextHandler(&log, nil))})
		stop := run(t, o)
		synctest.Wait()
		state := func() State {
			synctest.Wait()
			s, _ := o.Latest()
			return Judge(s, Sight{Stale: time.Since(s.Taken)}, o.blindAfter).State
		}
		if got := state(); got != Breaching {
			t.Fatalf("state is %s, want %s", got, Breaching)
		}
		source.set(func(f *fakeSource) { f.err = errDown })
		time.Sleep(3 * time.Minute)
		if got := state(); got != Blind {
			t.Errorf("after three minutes without Redis the state is %s, want %s", got, Blind)
		}
		s, ok := o.Latest()
		if !ok || s.Classes[1].Oldest().Eligible != 48*time.Second {
			t.Error("the last snapshot did not stay")
		}
		if r := report(s, Sight{Stale: time.Since(s.Taken)}, Triage{}); r.StaleSeconds != 180 {
			t.Errorf("stale_seconds is %v, want 180", r.StaleSeconds)
		}
		source.set(func(f *fakeSource) { f.err, f.sample = nil, calm() })
		time.Sleep(time.Second)
		if got := state(); got != Within {
			t.Errorf("a second after Redis came back the state is %s, want %s", got, Within)
		}
		stop()
		if n := strings.Count(log.String(), "\n"); n != 2 {
			t.Errorf("got %d log lines, want 2:\n%s", n, &log)
		}
	})
}

// hungSource never answers before its context ends.
type hungSource struct{ fakeSource }

func (h *hungSource) Sample(ctx context.Context, classes []string) (schedule.Sample, error) {
	_, _ = h.fakeSource.Sample(ctx, classes)
	<-ctx.Done()
	return schedule.Sample{}, ctx.Err()
}

func TestRunGivesUpOnAHungRedis(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		source := &hungSource{}
		o := newOnCall(t, source, Options{})
		stop := run(t, o)
		time.Sleep(time.Minute)
		if samples, _ := source.counts(); samples < 25 {
			t.Errorf("only %d samples were tried in a minute: a hung one holds up the rest", samples)
		}
		if _, ok := o.Latest(); ok {
			t.Error("there is a snapshot, but nothing ever answered")
		}
		stop()
	})
}

// A server that starts while Redis is away says so, and does not wait for ever.
func TestRunWithoutRedis(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		source := &fakeSource{err: errDown}
		o := newOnCall(t, source, Options{})
		began := stampOf(time.Now()).Clock
		stop := run(t, o)
		synctest.Wait()
		if _, body := get(t, o.Page(), "/oncall"); !strings.Contains(body, "Waiting for the first sample") {
			t.Error("the page does not say that it has only just started")
		}
		time.Sleep(time.Minute)
		synctest.Wait()
		_, page := get(t, o.Page(), "/oncall")
		res, report := get(t, o.JSON(), "/v1/oncall")
		for name, text := range map[string]string{"page": page, "report": report} {
			for _, want := range []string{"Redis has not answered since", began, "no sample for 1 min", errDown.Error()} {
				if !strings.Contains(text, want) {
					t.Errorf("the %s lacks %q: %s", name, want, text)
				}
			}
		}
		if res.StatusCode != http.StatusServiceUnavailable {
			t.Errorf("the report is %s, want 503", res.Status)
		}
		source.set(func(f *fakeSource) { f.err, f.sample = nil, calm() })
		time.Sleep(time.Second)
		synctest.Wait()
		if _, body := get(t, o.Page(), "/oncall"); !strings.Contains(body, "Every class is within its SLO") {
			t.Error("the page did not find the way back")
		}
		stop()
	})
}

// Leases that stay expired are news after ten seconds, one that is reclaimed is not.
func TestRunCountsExpiredLeases(t *testing.T) {
	t.Parallel()
	source := &fakeSource{sample: calm()}
	source.sample.Ages = nil
	o := newOnCall(t, source, Options{})
	for _, c := range []struct {
		at      time.Duration
		expired int64
		want    time.Duration
	}{
		{0, 0, 0},
		{time.Second, 2, 0},
		{8 * time.Second, 1, 7 * time.Second},
		{9 * time.Second, 0, 0},
		{10 * time.Second, 1, 0},
		{30 * time.Second, 1, 20 * time.Second},
	} {
		source.set(func(f *fakeSource) { f.sample.Now, f.sample.ExpiredLeases = redisNow.Add(c.at), c.expired })
		o.sample(t.Context())
		s, _ := o.Latest()
		if s.ExpiredFor != c.want {
			t.Errorf("after %s leases are expired for %s, want %s", c.at, s.ExpiredFor, c.want)
		}
		if v := Judge(s, Sight{}, 5*time.Second); v.Abandoned != (c.want > reclaimPatience) {
			t.Errorf("after %s abandoned is %v", c.at, v.Abandoned)
		}
	}
}

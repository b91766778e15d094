package main

import (
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/fanout/fanout/internal/schedule"
)

func TestDecades(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		from, most int64
		want       []int64
	}{
		{1000, 1000, []int64{1000}},
		{1000, 30_000, []int64{1000, 10_000, 30_000}},
		{100, 100_000, []int64{100, 1000, 10_000, 100_000}},
		{1_000_000, 10_000_000, []int64{1_000_000, 3_000_000, 10_000_000}},
	} {
		if got := decades(tt.from, tt.most); !slices.Equal(got, tt.want) {
			t.Errorf("from %d to %d: %v, want %v", tt.from, tt.most, got, tt.want)
		}
	}
}

// Every subscriber gets as much as the others, whatever an event's size.
func TestBacklogIsSpreadEvenly(t *testing.T) {
	t.Parallel()
	for _, partitions := range []int{1, 4} {
		q := queue{work: 100, parts: make([][]schedule.Target, partitions), offsets: make([]int, partitions)}
		for i := range q.work {
			p := i % partitions
			q.parts[p] = append(q.parts[p], schedule.Target{SubscriberID: scaleID(i)})
		}
		got := map[string]int{}
		for _, n := range []int64{100, 20, 20, 20, 20, 20, 1000} { // the last is cut: one each
			for _, c := range q.take(n) {
				for _, one := range c.targets {
					got[one.SubscriberID]++
				}
			}
		}
		for i := range q.work {
			if n := got[scaleID(i)]; n != 3 {
				t.Errorf("%d partitions: subscriber %d got %d, want 3", partitions, i, n)
			}
		}
	}
}

// The page has both places, and a second writing leaves no trace of the first.
func TestCapacityPageCanBeWrittenAnew(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../docs/capacity.md")
	if err != nil {
		t.Fatal(err)
	}
	text := string(page)
	for _, name := range []string{"figures", "plan"} {
		once, err := between(text, name, "first\n")
		if err != nil {
			t.Fatal(err)
		}
		twice, err := between(once, name, "second\n")
		if err != nil || strings.Contains(twice, "first\n<!--") || !strings.Contains(twice, "begin -->\nsecond\n<!-- "+name+": end") {
			t.Errorf("%s: %v\n%s", name, err, twice)
		}
	}
	if _, err := between(text, "other", ""); err == nil {
		t.Error("a place that is not there was found")
	}
}

// A soak says what grew, and nothing else.
func TestSoakSeesGrowth(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name string
		grow func(l *look, minute float64)
		want string
	}{
		{"nothing", func(*look, float64) {}, ""},
		{"goroutines", func(l *look, m float64) { l.Processes["api goroutines"] += 5 * m }, "api goroutines"},
		{"connections that come and go", func(l *look, m float64) {
			n := float64(int(7*m) % 3 * 20)
			l.Processes["dispatcher fds"] += n
			l.Processes["dispatcher goroutines"] += 2 * n
		}, ""},
		{"connections", func(l *look, m float64) {
			l.Processes["dispatcher fds"] += 6 * m
			l.Processes["dispatcher goroutines"] += 12 * m
		}, "dispatcher goroutines, dispatcher fds"},
		{"those to Redis", func(l *look, m float64) { l.Redis["clients"] += 5 * m }, "redis connections"},
		{"heap", func(l *look, m float64) { l.Processes["dispatcher heap"] += 2e6 * m }, "dispatcher heap"},
		{"Redis", func(l *look, m float64) { l.Redis["memory"] += 5e5 * m * m }, "redis bytes per delivery accepted"},
	} {
		k := soak{o: soakOptions{length: 10 * time.Minute, settle: 2 * time.Minute, every: 5 * time.Second}}
		for at := 0.0; at < 600; at += 5 {
			l := look{At: at, Accepted: int64(1000 * at), Processes: map[string]float64{}, Redis: map[string]float64{"memory": 4e5 * at, "clients": 30}}
			for _, process := range []string{"api", "dispatcher"} {
				for _, w := range watched {
					l.Processes[process+" "+w.name] = 50
				}
			}
			tt.grow(&l, at/60)
			k.looks = append(k.looks, l)
		}
		var grew []string
		for _, g := range k.compare() {
			if g.bad() {
				grew = append(grew, g.Name)
			}
		}
		if got := strings.Join(grew, ", "); got != tt.want {
			t.Errorf("%s: it says %q grew, want %q", tt.name, got, tt.want)
		}
	}
}

func TestKindOfKey(t *testing.T) {
	t.Parallel()
	for key, want := range map[string]string{
		"{fo:0.3}:d:dlv_1": "d", "{fo:0.3}:q:f:sub_1": "q", "{fo:e0.3}:body:evt_1": "event body", "{fo:0.3}:leases": "leases", "fo:meta": "fo:meta",
	} {
		if got := kindOf(key); got != want {
			t.Errorf("%s is %q, want %q", key, got, want)
		}
	}
}

package loadtest

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net/http"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

// sampleEvery is how often the processes' metrics are read.
const sampleEvery = 500 * time.Millisecond

// sample is what all processes said at one time. Totals are sums over processes.
type sample struct {
	at         time.Duration      // since origin
	slots      map[string]float64 // in use, by "pool/lane"
	retries    float64            // scheduled so far
	dead       float64            // dead-lettered so far
	leasesLost float64
	eligible   float64 // age of the oldest eligible delivery, s
}

// add takes in one series of one process.
func (s *sample) add(name string, labels map[string]string, v float64) {
	switch name {
	case "fanout_slots":
		pool := labels["pool"]
		if pool == "" {
			pool = "fast"
		}
		s.slots[pool+"/"+labels["lane"]] += v
	case "fanout_retries_scheduled_total":
		s.retries += v
	case "fanout_dead_letters_total":
		s.dead += v
	case "fanout_leases_lost_total":
		s.leasesLost += v
	case "fanout_oldest_eligible_age_seconds":
		s.eligible = max(s.eligible, v)
	}
}

var (
	seriesLine = regexp.MustCompile(`^(fanout_\w+)(?:\{(.*)\})? (\S+)`)
	labelPair  = regexp.MustCompile(`(\w+)="((?:[^"\\]|\\.)*)"`)
)

// read takes in the text that a process serves as its metrics.
func (s *sample) read(r io.Reader) error {
	lines := bufio.NewScanner(r)
	for lines.Scan() {
		if !wanted(lines.Text()) {
			continue
		}
		m := seriesLine.FindStringSubmatch(lines.Text())
		if m == nil {
			continue
		}
		v, err := strconv.ParseFloat(m[3], 64)
		if err != nil {
			return fmt.Errorf("read the metric %s: %w", m[1], err)
		}
		labels := map[string]string{}
		for _, pair := range labelPair.FindAllStringSubmatch(m[2], -1) {
			labels[pair[1]] = pair[2]
		}
		s.add(m[1], labels, v)
	}
	return lines.Err()
}

// wanted spares the many series that are not looked at.
func wanted(line string) bool {
	for _, p := range []string{"fanout_slots{", "fanout_retries_sch", "fanout_dead_letters_total", "fanout_leases_lost", "fanout_oldest_elig"} {
		if strings.HasPrefix(line, p) {
			return true
		}
	}
	return false
}

// scraper reads the metrics of all processes from time to time.
type scraper struct {
	origin time.Time
	urls   []string

	looking sync.Mutex // one look at a time keeps them in order
	mu      sync.Mutex
	samples []sample
}

func newScraper(origin time.Time, s *service) *scraper {
	sc := &scraper{origin: origin}
	for _, c := range append([]*child{s.api}, s.dispatchers...) {
		sc.urls = append(sc.urls, "http://"+c.addr+"/metrics")
	}
	return sc
}

// run looks until ctx ends.
func (sc *scraper) run(ctx context.Context) {
	for {
		_ = sc.look(ctx) // the last look, by the caller, says what is wrong
		if pause(ctx, sampleEvery) != nil {
			return
		}
	}
}

// look takes one sample. One that could not be had of every process is left out:
// its totals would dip.
func (sc *scraper) look(ctx context.Context) error {
	sc.looking.Lock()
	defer sc.looking.Unlock()
	s := sample{at: time.Since(sc.origin), slots: map[string]float64{}}
	for _, u := range sc.urls {
		if err := scrape(ctx, u, &s); err != nil {
			return fmt.Errorf("read the metrics: %w", err)
		}
	}
	sc.mu.Lock()
	defer sc.mu.Unlock()
	sc.samples = append(sc.samples, s)
	return nil
}

func scrape(ctx context.Context, url string, into *sample) error {
	resp, err := get(ctx, url)
	if err != nil {
		return err
	}
	defer func() { _ = resp.Body.Close() }()
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("%s answers %d", url, resp.StatusCode)
	}
	return into.read(resp.Body)
}

// all returns the samples so far.
func (sc *scraper) all() []sample {
	sc.mu.Lock()
	defer sc.mu.Unlock()
	return slices.Clip(sc.samples)
}

// last returns the newest sample, or a zero one.
func (sc *scraper) last() sample {
	if all := sc.all(); len(all) > 0 {
		return all[len(all)-1]
	}
	return sample{}
}

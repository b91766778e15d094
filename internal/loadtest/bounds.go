package loadtest

import (
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
)

// The bounds. A scenario that breaks one is said to, and nothing hides it.
const (
	mostRatio        = 2.0  // healthy p99 over the base
	mostRequestShare = 0.02 // of what naive retrying would send in the outage
	// mostBudget is the share of the attempt budget that the outage may spend:
	// waiting costs none, and what is left are the attempts before the breaker
	// opened, probes, and those in flight meanwhile.
	mostBudget = 0.5
)

// judge fills in what is broken.
func (r *Report) judge() {
	for _, s := range r.Scenarios {
		broken := func(ok bool, format string, a ...any) {
			if !ok {
				r.Broken = append(r.Broken, s.Name+": "+fmt.Sprintf(format, a...))
			}
		}
		h := s.Healthy
		broken(h.Deliveries > 0, "nothing was sent to the healthy subscribers")
		broken(h.Arrived == h.Deliveries, "%d of %d deliveries of the healthy subscribers had not arrived within a second of the last post",
			h.Deliveries-h.Arrived, h.Deliveries)
		// In the outage the machine is kept busy by the recovery, as it is to be.
		// Beside a redrive they are held to what the same load cost before it.
		if s.Name != calm && s.Name != outage && s.Name != redriving {
			broken(s.Ratio <= mostRatio, "the healthy subscribers' p99 age is %.0f ms, %.1f times the %.0f ms of calm; at most %g is allowed",
				h.P99, s.Ratio, r.Base, mostRatio)
		}
		if s.Outage != nil {
			s.Outage.judge(broken)
		}
		if s.Redrive != nil {
			s.Redrive.judge(broken, r.Short)
		}
	}
}

func (o *Outage) judge(broken func(ok bool, format string, a ...any)) {
	broken(o.Naive > 0, "no delivery fell due in the outage")
	broken(o.Share <= mostRequestShare, "%d requests were sent during the outage, %.2f %% of the %d of naive retrying; at most %.0f %% are allowed",
		o.Requests, 100*o.Share, o.Naive, 100*mostRequestShare)
	broken(o.Undelivered == 0, "%d of the %d deliveries of the outage were not delivered %.0f s after the recovery",
		o.Undelivered, o.Deliveries, o.DrainSeconds)
	broken(o.Duplicates == 0, "%d requests came after a 2xx of the same delivery, beyond %d lost leases", o.Duplicates, o.LeasesLost)
	broken(float64(o.MostAttempts) <= mostBudget*float64(o.MaxAttempts), "a delivery spent %d of its %d attempts waiting for the recovery",
		o.MostAttempts, o.MaxAttempts)
	broken(o.MostInFlight <= o.MaxInFlight, "%d requests were at one endpoint at once, its cap is %d", o.MostInFlight, o.MaxInFlight)
	// Were fresh events sent in their turn behind the history, the first of them would
	// wait for all of it.
	broken(o.Fresh.P99 <= max(o.History.P50, leastBase), "fresh events were %.0f ms old at p99 while half of the history waited less than %.0f ms: they stood behind it",
		o.Fresh.P99, o.History.P50)
}

// Figures is the last line of a run: key=value, of the scenarios that were played.
func (r *Report) Figures() string {
	var words []string
	add := func(key, format string, v any) { words = append(words, key+"="+fmt.Sprintf(format, v)) }
	for _, s := range r.Scenarios {
		switch key := strings.ReplaceAll(s.Name, "-", "_"); s.Name {
		case calm:
			add("calm_p99_ms", "%.1f", s.Healthy.P99)
		case "hang", "hang-small":
			if s.Name == "hang" {
				add("hang_p99_ms", "%.1f", s.Healthy.P99)
			}
			add(key+"_ratio", "%.2f", s.Ratio)
			add(key+"_delivered_share", "%s", shareText(s.Healthy))
		case outage:
			add("outage_request_share", "%.4f", s.Outage.Share)
			add("outage_duplicates", "%d", s.Outage.Duplicates)
		case redriving, redriveFails:
			s.Redrive.figures(key, add)
		default:
			add(key+"_ratio", "%.2f", s.Ratio)
		}
	}
	return strings.Join(words, " ")
}

// shareText is a share that is only 1 if nothing is missing.
func shareText(a Ages) string {
	if a.Arrived == a.Deliveries {
		return "1.0"
	}
	return fmt.Sprintf("%.4f", min(a.Share, 0.9999))
}

// WriteTable writes what a person reads.
func (r *Report) WriteTable(w io.Writer) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	row := func(cells ...any) { _, _ = fmt.Fprintln(t, cellsText(cells)) } // the flush reports it
	row("scenario", "healthy", "in time", "p50 ms", "p99 ms", "max ms", "ratio", "post p99 ms", "retries", "dead")
	for _, s := range r.Scenarios {
		h := s.Healthy
		row(s.Name, h.Deliveries, shareText(h), num(h.P50), num(h.P99), num(h.Max), fmt.Sprintf("%.2f", s.Ratio),
			num(s.PostP99), s.Retries, s.DeadLetters)
	}
	if err := t.Flush(); err != nil {
		return err
	}
	for _, s := range r.Scenarios {
		text := ""
		if s.Outage != nil {
			text = s.Outage.text()
		}
		if s.Redrive != nil {
			text = s.Redrive.text(s.Name)
		}
		if _, err := io.WriteString(w, text); err != nil {
			return err
		}
	}
	return nil
}

func (o *Outage) text() string {
	return fmt.Sprintf(outageText, o.Requests, o.Naive, 100*o.Share, o.Deliveries-o.Undelivered, o.Deliveries,
		o.DrainSeconds, o.MostAttempts, o.MaxAttempts, o.MostInFlight, o.MaxInFlight, o.Duplicates, o.LeasesLost,
		num(o.Fresh.P50), num(o.Fresh.P99), num(o.History.P50), num(o.History.P99))
}

const outageText = `
outage: %d requests while it lasted, naive retrying sends %d: %.2f %%
        %d of %d deliveries arrived, the last %.1f s after the recovery
        attempts at most %d of %d, in flight at most %d of %d, duplicates %d beyond %d lost leases
        fresh events' age during the recovery: p50 %s ms, p99 %s ms; history's wait: p50 %s ms, p99 %s ms
`

func num(v float64) string { return fmt.Sprintf("%.1f", v) }

func cellsText(cells []any) string {
	var b strings.Builder
	for _, c := range cells {
		fmt.Fprintf(&b, "%v\t", c)
	}
	return b.String()
}

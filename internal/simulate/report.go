package simulate

import (
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"text/tabwriter"
	"time"
)

// WriteJSON writes the whole report as one document.
func (r *Report) WriteJSON(w io.Writer) error {
	enc := json.NewEncoder(w)
	enc.SetIndent("", "  ")
	if err := enc.Encode(r); err != nil {
		return fmt.Errorf("write the report: %w", err)
	}
	return nil
}

// WriteTable writes it for a person: a row for each policy and group, and what the rows
// do not say.
func (r *Report) WriteTable(out io.Writer) error {
	tw := tabwriter.NewWriter(out, 0, 0, 2, ' ', tabwriter.AlignRight)
	say := func(cells ...string) { _, _ = fmt.Fprintln(tw, strings.Join(cells, "\t")+"\t") } // reported by the flush
	say("policy", "group", "posted", "delivered", "dead", "pending", "age p50", "p90", "p99", "max",
		"requests", "each", "peak/s", "slots", "drained")
	for _, res := range r.Results {
		for _, g := range res.Groups {
			if g.Group == allGroups && len(res.Groups) == 2 {
				continue // it is the one group again
			}
			say(res.Policy, g.Group, fmt.Sprint(g.Posted), percent(g.Share()), fmt.Sprint(g.DeadTotal()), fmt.Sprint(g.Pending),
				g.age(g.P50), g.age(g.P90), g.age(g.P99), g.age(g.Max),
				fmt.Sprint(g.Requests), fmt.Sprintf("%.3f", g.PerDelivery), fmt.Sprint(g.Peak), fmt.Sprint(g.SlotsP99), g.drained())
		}
	}
	if err := tw.Flush(); err != nil {
		return fmt.Errorf("write the table: %w", err)
	}
	_, err := io.WriteString(out, "\n"+r.lines())
	if err != nil {
		return fmt.Errorf("write the table: %w", err)
	}
	return nil
}

// lines say by policy what no row has.
func (r *Report) lines() string {
	var b strings.Builder
	for _, res := range r.Results {
		all := res.All()
		fmt.Fprintf(&b, "%s: %d slots needed of %d (p99), all taken for %s of the time", res.Policy, all.SlotsP99, res.Slots, percent(res.Saturated))
		for i, why := range slices.Sorted(maps.Keys(all.Dead)) {
			lead := ", "
			if i == 0 {
				lead = "; dead letters: "
			}
			fmt.Fprintf(&b, "%s%d %s", lead, all.Dead[why], why)
		}
		b.WriteString("\n")
		for _, n := range res.Notes {
			fmt.Fprintf(&b, "%s: note: %s\n", res.Policy, n)
		}
	}
	return b.String()
}

// age is one of its ages, if there is any.
func (g GroupResult) age(ms float64) string {
	if g.Delivered == 0 {
		return "-"
	}
	return age(ms)
}

// drained is how long the longest drain took.
func (g GroupResult) drained() string {
	switch {
	case len(g.Drains) == 0:
		return "-"
	case slices.Contains(g.Drains, -1):
		return "never"
	}
	return age(slices.Max(g.Drains) * 1000)
}

// percent is never 100 of less than all, nor 0 of more than nothing.
func percent(share float64) string {
	switch p := share * 100; {
	case share >= 1:
		return "100%"
	case p > 99.99:
		return ">99.99%"
	case share > 0 && p < 0.01:
		return "<0.01%"
	case share == 0:
		return "0%"
	default:
		return fmt.Sprintf("%.2f%%", p)
	}
}

// age is a time in ms as people read it.
func age(ms float64) string {
	d := time.Duration(ms * float64(time.Millisecond))
	switch {
	case d < time.Second:
		return fmt.Sprintf("%.1fms", ms)
	case d < time.Minute:
		return fmt.Sprintf("%.1fs", ms/1000)
	}
	return d.Round(time.Second).String()
}

package main

import (
	"errors"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"time"
)

// reportLayouts prints the table, writes cluster.json and cluster.md, and ends in the
// line of figures. It fails if a primary was asked for what is not its own.
func (b *bench) reportLayouts(w io.Writer, all []layout, took map[layout][]spreadOut) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	var md strings.Builder
	fmt.Fprintln(t, "\n\tdeliveries/s\tRedis CPU us\tscripts us\tscript calls\tReads\tAPI CPU ms\tdispatcher CPU ms\tdeliveries\tkeys\tCPU")
	md.WriteString("| | deliveries/s | Redis CPU us per delivery, all primaries | round trips per delivery | busiest primary over an even share: deliveries, keys, CPU |\n|---|---|---|---|---|\n")
	var line, strays []string
	for _, l := range all {
		of := func(f func(spreadOut) float64) (values []float64) {
			for _, one := range took[l] {
				values = append(values, f(one))
			}
			return values
		}
		rate, redis, trips := of(func(o spreadOut) float64 { return o.Rate }), of(func(o spreadOut) float64 { return o.RedisUS }),
			of(func(o spreadOut) float64 { return o.Trips })
		var uneven []string
		for _, f := range []func(node) float64{
			func(n node) float64 { return float64(n.Deliveries) }, func(n node) float64 { return float64(n.Keys) }, func(n node) float64 { return n.CPU },
		} {
			uneven = append(uneven, spread("%.3f", median(of(func(o spreadOut) float64 { return o.uneven(f) }))))
		}
		fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\n", l, spread("%.0f", rate), spread("%.1f", redis),
			spread("%.1f", of(func(o spreadOut) float64 { return o.ScriptUS })), spread("%.3f", of(func(o spreadOut) float64 { return o.Calls })),
			spread("%.3f", trips), spread("%.3f", of(func(o spreadOut) float64 { return o.APIMS })),
			spread("%.3f", of(func(o spreadOut) float64 { return o.WorkerMS })), strings.Join(uneven, "\t"))
		fmt.Fprintf(&md, "| %s | %s | %s | %s | %s |\n", l, spread("%.0f", rate), spread("%.1f", redis), spread("%.3f", trips), strings.Join(uneven, ", "))
		line = append(line, fmt.Sprintf("%s_per_s=%.0f", l.key(), quantile(rate, 0.5)), fmt.Sprintf("%s_redis_us=%.1f", l.key(), quantile(redis, 0.5)))
		if l.primaries > 0 {
			line = append(line, l.key()+"_uneven="+uneven[0])
		}
		for _, one := range took[l] {
			for prefix, count := range one.Errors {
				strays = append(strays, fmt.Sprintf("%s: %s %.0f times", l, prefix, count))
			}
		}
	}
	line = append(line, fmt.Sprintf("redis_errors=%d", len(strays)))
	byName := map[string][]spreadOut{}
	for l, one := range took {
		byName[l.key()] = one
	}
	err := errors.Join(t.Flush(), b.saveAs("cluster", md.String(), map[string]any{
		"line": strings.Join(line, " "), "machine": b.machine(), "took_at": time.Now().UTC().Format(time.RFC3339), "layouts": byName,
	}))
	_, _ = fmt.Fprintf(w, "\n%s\n", strings.Join(line, " "))
	if err == nil && len(strays) > 0 {
		err = fmt.Errorf("errors of Redis: %s", strings.Join(strays, ", "))
	}
	return err
}

package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// markdown writes results.md, the table for a document. It has ratios and CPU, which
// carry over to another machine better than a rate does.
func (b *bench) markdown() error {
	r := &b.took
	var t strings.Builder
	fmt.Fprintf(&t, "Median (range) of %d rounds, %d attempts at once, %d endpoints, %d-byte bodies.\n\n",
		len(r.rounds), b.o.slots, endpoints, bodySize)
	t.WriteString("| | of the ceiling | deliveries/s | CPU ms per delivery, all processes | Redis CPU ms |\n|---|---|---|---|---|\n")
	for _, row := range rows {
		rate := r.of(row.key, func(s sample) float64 { return s.Rate })
		if len(rate) == 0 {
			continue
		}
		redis := r.of(row.key, func(s sample) float64 { return s.CPU["redis"] })
		if row.key == "ceiling" {
			redis = nil
		}
		fmt.Fprintf(&t, "| %s | %s | %s | %s | %s |\n", row.title, spread("%.2f", r.share(row.key)),
			spread("%.0f", rate), spread("%.3f", r.of(row.key, sample.all)), spread("%.3f", redis))
	}
	return os.WriteFile(filepath.Join(b.o.out, "results.md"), []byte(t.String()), 0o644)
}

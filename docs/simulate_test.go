package docs_test

import (
	"fmt"
	"os"
	"strconv"
	"testing"

	"github.com/fanout/fanout/internal/simulate"
)

// predictions plays a scenario of docs/simulate, and gives its figures by group and name.
func predictions(t *testing.T, file string) map[string]float64 {
	t.Helper()
	f, err := os.Open("simulate/" + file + ".yaml")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	sc, err := simulate.Read(f)
	if err != nil {
		t.Fatal(err)
	}
	rep, err := simulate.Run(t.Context(), sc, nil)
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]float64{}
	for _, g := range rep.Results[0].Groups {
		for figure, v := range map[string]float64{
			"age p50 ms": g.P50, "age p99 ms": g.P99, "age p50 s": g.P50 / 1000, "age p99 s": g.P99 / 1000,
			"requests": float64(g.Requests), "failed requests": float64(g.Requests - g.Delivered), "slots max": float64(g.SlotsMax),
		} {
			all[g.Group+" "+figure] = v
		}
		if len(g.Drains) > 0 {
			all[g.Group+" drained s"] = g.Drains[0]
		}
	}
	return all
}

// What the page says is predicted, is; and the ratios are those of their rows.
func TestPredictionsAreThoseOfTheCommand(t *testing.T) {
	t.Parallel()
	rows := tableOf(t, "simulate.md", "| file | group | figure | predicted | measured | ratio |")
	played := map[string]map[string]float64{}
	for _, row := range rows {
		file := row[0]
		if played[file] == nil {
			played[file] = predictions(t, file)
		}
		is, ok := played[file][row[1]+" "+row[2]]
		if !ok {
			t.Errorf("%v: no such figure", row)
			continue
		}
		decimals := 0
		for i := range row[3] {
			if row[3][i] == '.' {
				decimals = len(row[3]) - i - 1
			}
		}
		if got := strconv.FormatFloat(is, 'f', decimals, 64); got != row[3] {
			t.Errorf("%v: predicted is %s", row, got)
		}
		says, _ := strconv.ParseFloat(row[3], 64)
		measured, err := strconv.ParseFloat(row[4], 64)
		if err != nil || fmt.Sprintf("%.2f", says/measured) != row[5] {
			t.Errorf("%v: the ratio is %.2f", row, says/measured)
		}
	}
	if len(rows) < 10 {
		t.Errorf("%d rows", len(rows))
	}
}

package plot

import (
	"bytes"
	"encoding/xml"
	"errors"
	"io"
	"math"
	"strings"
	"testing"
)

func svg(t *testing.T, c Chart) string {
	t.Helper()
	var b bytes.Buffer
	if err := c.WriteSVG(&b); err != nil {
		t.Fatal(err)
	}
	dec := xml.NewDecoder(bytes.NewReader(b.Bytes()))
	for {
		if _, err := dec.Token(); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatalf("not well-formed: %v\n%s", err, b.String())
		}
	}
	if s := b.String(); strings.Contains(s, "NaN") || strings.Contains(s, "Inf") {
		t.Errorf("a place that is no number:\n%s", s)
	}
	return b.String()
}

func TestEveryChartIsWellFormed(t *testing.T) {
	t.Parallel()
	line := []Point{{0, 1}, {1, 3}, {2, 2}}
	for name, c := range map[string]Chart{
		"empty":      {},
		"no points":  {Title: "none", Series: []Series{{Name: "a"}}},
		"one point":  {Series: []Series{{Name: "a", Points: []Point{{5, 5}}}}},
		"all zero":   {Series: []Series{{Name: "a", Points: []Point{{0, 0}, {1, 0}}}}},
		"below zero": {Series: []Series{{Name: "a", Points: []Point{{-4, -2}, {1, -9}}}}},
		"gaps":       {Series: []Series{{Name: "a", Points: []Point{{0, 1}, {1, math.NaN()}, {2, math.Inf(1)}, {3, 1}}}}},
		"log":        {Y: Axis{Log: true}, Series: []Series{{Name: "a", Points: []Point{{0, 0}, {1, .004}, {2, 31}}}}},
		"log, empty": {Y: Axis{Log: true}},
		"log, flat":  {X: Axis{Log: true}, Y: Axis{Log: true}, Series: []Series{{Name: "a", Points: []Point{{1, 1}, {1, 1}}}}},
		"huge":       {Series: []Series{{Name: "a", Points: []Point{{0, 1e300}, {1e18, 0}}}}},
		"markup":     {Title: `<a href="x">&`, X: Axis{Label: "<"}, Series: []Series{{Name: "]]>&", Points: line}}, Marks: []Mark{{1, "<mark>"}, {99, "out"}}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			svg(t, c)
		})
	}
}

func TestChartShowsWhatItIsGiven(t *testing.T) {
	t.Parallel()
	s := svg(t, Chart{
		Title: "Ages", X: Axis{Label: "time", Unit: "s"}, Y: Axis{Label: "age", Unit: "s", Log: true},
		Series: []Series{
			{Name: "healthy", Points: []Point{{0, .01}, {10, .1}}},
			{Name: "failing", Points: []Point{{0, 1}, {10, 10}}, Step: true},
		},
		Marks: []Mark{{5, "half hang"}},
	})
	for _, want := range []string{
		"<title id=\"t\">Ages</title>", "healthy reaches 0.1 s", "failing reaches 10 s", ">time (s)<", ">age (s)<",
		">healthy<", ">failing<", ">half hang<", "prefers-color-scheme:dark", "stroke-dasharray:7 4", //nolint:misspell // CSS spells it so
		">0.01<", ">0.1<", ">1<", ">10<",
		`d="M76.0 296.0L840.0 218.7"`, // from the corner of the frame, a decade up
		`d="M76.0 141.3H840.0V64.0"`,  // a step holds its value, then jumps to the top
	} {
		if !strings.Contains(s, want) {
			t.Errorf("no %q in\n%s", want, s)
		}
	}
}

func TestTicksAreRoundAndFew(t *testing.T) {
	t.Parallel()
	for _, hi := range []float64{.0003, .7, 1, 3, 8, 19, 42, 99, 1234, 5e7} {
		s := newScale(Axis{}, []float64{hi}, 0, 100)
		ticks := s.ticks()
		if len(ticks) < 4 || len(ticks) > 11 || ticks[0] != 0 {
			t.Errorf("up to %g: %v", hi, ticks)
		}
	}
}

func TestNumbersAreShort(t *testing.T) {
	t.Parallel()
	for v, want := range map[float64]string{
		0: "0", 0.3000000004: "0.3", 12.345678: "12.35", 9999: "9999", 10_000: "10k", 2_500_000: "2.5M", -15_000: "-15k",
	} {
		if got := number(v); got != want {
			t.Errorf("%v is written %s, want %s", v, got, want)
		}
	}
}

type full struct{}

var errFull = errors.New("disk full")

func (full) Write([]byte) (int, error) { return 0, errFull }

func TestErrorOfTheWriterIsReturned(t *testing.T) {
	t.Parallel()
	if err := (Chart{Title: "x"}).WriteSVG(full{}); !errors.Is(err, errFull) {
		t.Errorf("got %v", err)
	}
}

// A stack is one picture of several, whose ids are apart and whose scales reach as far.
func TestStack(t *testing.T) {
	t.Parallel()
	c := Chart{Title: "a", X: Axis{Label: "time", To: 50}, Series: []Series{{Name: "s", Points: []Point{{1, 1}, {2, 2}}}}}
	var b bytes.Buffer
	if err := WriteStack(&b, c, c); err != nil {
		t.Fatal(err)
	}
	all := b.String()
	for _, part := range []string{`id="t0"`, `id="t1"`, `y="380"`, `viewBox="0 0 860 760"`, ">50</text>"} {
		if !strings.Contains(all, part) {
			t.Errorf("no %s in\n%s", part, all)
		}
	}
	if n := strings.Count(all, "<style>"); n != 1 {
		t.Errorf("%d styles", n)
	}
}

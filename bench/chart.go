package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/fanout/fanout/internal/plot"
)

// curveEvery is how often arrivals are counted for the chart over time.
const curveEvery = 100 * time.Millisecond

// curve counts what arrives at the sink until it is ended, and then gives deliveries
// a second over seconds.
func (b *bench) curve() (end func() []plot.Point) {
	stop, done := make(chan struct{}), make(chan []plot.Point)
	go func() {
		tick := time.NewTicker(curveEvery)
		defer tick.Stop()
		var points []plot.Point
		start, before, seen := time.Now(), time.Now(), b.board.count.Load()
		for {
			select {
			case <-stop:
				done <- points
				return
			case now := <-tick.C:
				n := b.board.count.Load()
				points = append(points, plot.Point{
					X: now.Sub(start).Seconds(), Y: float64(n-seen) / now.Sub(before).Seconds(),
				})
				before, seen = now, n
			}
		}
	}()
	return func() []plot.Point { close(stop); return <-done }
}

// charts draws what was measured: the last round over time, and, if there were
// several, each contender's share of the ceiling by round.
func (b *bench) charts() error {
	over := plot.Chart{
		Title: "Deliveries arriving while events are posted",
		X:     plot.Axis{Label: "time", Unit: "s"}, Y: plot.Axis{Label: "deliveries", Unit: "1/s"},
	}
	shares := plot.Chart{
		Title: "Share of what a bare HTTP client reaches",
		X:     plot.Axis{Label: "round"}, Y: plot.Axis{Label: "share of the ceiling"},
	}
	for _, row := range rows {
		key := row.key
		if key == "ceiling" {
			key = fmt.Sprintf("ceiling-%d", max(1, len(b.took.ceilings())))
		}
		if points := b.curves[key]; len(points) > 0 {
			over.Series = append(over.Series, plot.Series{Name: row.title, Points: points})
		}
		var points []plot.Point
		for i, share := range b.took.share(row.key) {
			points = append(points, plot.Point{X: float64(i + 1), Y: share})
		}
		if len(points) > 1 {
			shares.Series = append(shares.Series, plot.Series{Name: row.title, Points: points})
		}
	}
	return errors.Join(b.draw("arrivals.svg", over), b.draw("shares.svg", shares))
}

// draw leaves out a chart that has nothing to show.
func (b *bench) draw(name string, c plot.Chart) error {
	if len(c.Series) == 0 {
		return nil
	}
	f, err := os.Create(filepath.Join(b.o.out, name))
	if err != nil {
		return err
	}
	return errors.Join(c.WriteSVG(f), f.Close())
}

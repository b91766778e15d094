package dispatch

import "sync"

// crew runs attempts on goroutines that it keeps. A new goroutine begins with a
// stack of a few KiB, and an attempt grows it two or three times on its way down
// into net/http, each time copied: that was 11 % of the CPU of a delivery. One that
// is kept has grown already.
//
// It has as many goroutines as there were attempts at once, so about as many as slots.
type crew struct {
	run  func(life, *lease)
	work chan task // unbuffered: what is taken has a goroutine
	all  sync.WaitGroup
}

type task struct {
	ends  life
	lease *lease
}

func newCrew(run func(life, *lease)) *crew { return &crew{run: run, work: make(chan task)} }

// begin starts an attempt, on an idle goroutine if there is one. It never waits.
func (c *crew) begin(ends life, l *lease) {
	t := task{ends, l}
	select {
	case c.work <- t:
	default:
		c.all.Go(func() {
			c.run(t.ends, t.lease)
			for t := range c.work {
				c.run(t.ends, t.lease)
			}
		})
	}
}

// end waits for all attempts. Nothing may begin after it was called.
func (c *crew) end() {
	close(c.work)
	c.all.Wait()
}

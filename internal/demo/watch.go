package demo

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/fanout/fanout/client"
)

const (
	// watchEvery is the pause between two looks at who is on hold. A breaker rests
	// for half a second at least.
	watchEvery = 150 * time.Millisecond
	// liveWatchEvery is the same once the file is through: people have time then.
	liveWatchEvery = time.Second
)

// watch tells on the screen who goes on hold, and what ends it. No line of the log
// says that: it is state, which anybody may look at over HTTP.
type watch struct {
	screen *screen

	mu   sync.Mutex
	seen map[string]standing // by subscriber id
}

// standing is what was seen of a subscriber's holds.
type standing struct {
	holds  []client.Hold
	opened int // how often its breaker did
}

// hold is one by its reason, and whether there is one.
func (st standing) hold(reason client.HoldReason) (client.Hold, bool) {
	i := slices.IndexFunc(st.holds, func(h client.Hold) bool { return h.Reason == reason })
	if i < 0 {
		return client.Hold{}, false
	}
	return st.holds[i], true
}

// run looks until ctx ends. Who is not of the play is not looked at.
func (w *watch) run(ctx context.Context, api *api, every func() time.Duration, name func(id string) string) {
	for rest(ctx, every()) == nil {
		subs, err := api.subscribers(ctx)
		if err != nil {
			continue // whoever needs an answer will say that there is none
		}
		now := time.Now()
		for _, s := range subs {
			if n := name(s.ID); n != "" && s.Status != nil {
				w.look(now, n, s)
			}
		}
	}
}

// look compares a subscriber with what was seen of it before, and tells what changed.
func (w *watch) look(now time.Time, name string, s client.Subscriber) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.seen == nil {
		w.seen = map[string]standing{}
	}
	was := w.seen[s.ID]
	is := standing{holds: s.Status.Holds, opened: was.opened}
	for _, h := range is.holds {
		before, held := was.hold(h.Reason)
		if h.Reason == client.Breaker {
			if !held {
				is.opened++
			}
			w.breaker(now, name, s, h, before, held)
		} else if !held {
			w.say(now, "◌ "+string(h.Reason), yellow, name, h.Note)
		}
	}
	for _, h := range was.holds {
		if _, held := is.hold(h.Reason); held {
			continue
		}
		word, what := "● no more "+string(h.Reason), "its deliveries go on"
		if h.Reason == client.Breaker {
			word, what = "● breaker closed", "its probe was answered: what waited goes on"
		}
		w.say(now, word, green, name, what)
	}
	w.seen[s.ID] = is
}

// breaker tells that one opened, or that its probe failed: then it rests for longer.
func (w *watch) breaker(now time.Time, name string, s client.Subscriber, is, was client.Hold, held bool) {
	why := fmt.Sprintf("%d failures in a row", s.Policy.BreakerFailures)
	if held {
		if is.Until.IsZero() || is.Until.Equal(was.Until) {
			return // its probe is out, or it rests as before
		}
		why = "the probe failed"
	}
	waiting := s.Status.Waiting.Fresh + s.Status.Waiting.Retry + s.Status.Waiting.Redrive
	next := fmt.Sprintf("%d waiting, a probe goes%s", waiting, inTime(is.Until, now))
	switch {
	case is.Until.IsZero():
		next = fmt.Sprintf("%d waiting, a probe is out", waiting)
	case waiting == 0:
		next = "nothing waits"
	}
	w.say(now, "◌ breaker open", yellow, name, why+": "+next)
}

func (w *watch) say(now time.Time, word, colour, name, what string) {
	s := w.screen
	s.sayf("%s %s %s %s\n", s.paint(now.Format(clockFormat), dim), s.paint(pad(word, wordWidth), colour),
		pad(name, nameWidth), printable(what, valueWidth))
}

// of is what was seen of a subscriber so far.
func (w *watch) of(id string) standing {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.seen[id]
}

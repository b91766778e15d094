package cli

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/fanout/fanout/client"
)

// redriveWatch follows a redrive.
type redriveWatch struct {
	one

	Interval    time.Duration `default:"1s" help:"How often to look, from 100ms."`
	ExitOnPause bool          `help:"End, with exit code 1, when the guard pauses it."`
}

// Run follows until the redrive has ended: done is exit code 0, aborted 1. To stop
// watching stops nothing else, and says so.
func (l *redriveWatch) Run(ctx context.Context, s *session) error {
	if l.Interval < minLook {
		return usage("--interval must be at least %s", minLook)
	}
	w := watcher{s: s}
	if !s.json() {
		w.bar = newBar(s.out.w)
	}
	defer w.bar.leave()
	tick := time.NewTicker(l.Interval)
	defer tick.Stop()
	for away := false; ; {
		r, err := w.look(ctx, string(l.ID))
		switch {
		case s.out.failure() != nil:
			return nil // whoever read has seen enough
		case ctx.Err() != nil:
			return w.stopped(string(l.ID))
		case err == nil:
			away = false
			if over, err := l.over(r); over {
				return err
			}
		case !w.looked, !errors.Is(err, client.ErrUnavailable) && !errors.Is(err, context.DeadlineExceeded):
			return err
		case !away: // once, and then again and again until it is back
			away = true
			w.bar.leave()
			s.notef("%s gives no answer; looking on: %v", s.API, err)
		}
		select {
		case <-ctx.Done():
			return w.stopped(string(l.ID))
		case <-tick.C:
		}
	}
}

// over says whether there is nothing more to see.
func (l *redriveWatch) over(r client.Redrive) (bool, error) {
	switch {
	case r.State == client.RedrivePaused && r.StoppedBy == "guard" && l.ExitOnPause:
		return true, &failedError{fmt.Sprintf("the guard has paused it: %s (fanout redrive resume %s --reason=...)", r.Stopped, r.ID)}
	case r.EndedAt.IsZero(): // aborted, it ends when what is out has ended
		return false, nil
	case r.State == client.RedriveAborted:
		return true, &failedError{"it was aborted: " + r.Stopped}
	}
	return true, nil
}

// watcher shows looks: as one line that changes, or as a line for each change.
type watcher struct {
	s      *session
	bar    *bar // nil where lines are for
	looked bool
	last   string
	stood  string // what is written above the bar
	state  client.RedriveState
}

// stopped says what goes on without anybody watching.
func (w *watcher) stopped(id string) error {
	w.bar.leave()
	if w.state == "" {
		return context.Canceled
	}
	goes, next := "the redrive goes on by itself", "Stop its release: fanout redrive pause "+id+" --reason=..."
	switch w.state {
	case client.RedriveAwaiting:
		goes, next = "the redrive waits for a person", "Let the others go: fanout redrive approve "+id+" --effect=..."
	case client.RedrivePaused:
		goes, next = "the redrive stays as it is", "Go on: fanout redrive resume "+id+" --reason=..."
	case client.RedriveAborted:
		goes, next = "what is out comes to its end", "See what came of it: fanout redrive show "+id
	default:
	}
	return &failedError{fmt.Sprintf("no longer watched; %s (%s).\n  Watch it again: fanout redrive watch %s\n  %s", goes, w.state, id, next)}
}

// seen is a look.
type seen struct {
	Redrive client.Redrive `json:"redrive"`
	// Age of the oldest eligible fresh or retry delivery, in seconds; nil if the key may
	// not see it.
	Age *float64 `json:"oldest_eligible_age_seconds"`
}

// look reads where it stands, and shows it if that is news.
func (w *watcher) look(ctx context.Context, id string) (client.Redrive, error) {
	r, err := getRedrive(ctx, w.s, id)
	if err != nil {
		return r, err
	}
	v := seen{Redrive: r}
	page, err := ask(ctx, w.s, func(ctx context.Context, c *client.Client) (client.OnCall, error) { return c.OnCall(ctx) })
	switch {
	case err == nil:
		age := oldestEligible(page)
		v.Age = &age
	case !errors.Is(err, client.ErrForbidden) && !errors.Is(err, client.ErrUnavailable): // before its first sample there is none
		return r, err
	}
	w.looked, w.state = true, r.State
	w.show(v)
	return r, nil
}

// oldestEligible is the age that the guard looks at: of what is new, and its retries.
func oldestEligible(page client.OnCall) (age float64) {
	for _, c := range page.Classes {
		for _, l := range c.Lanes {
			if l.Lane != "redrive" {
				age = max(age, l.OldestEligibleAgeSeconds)
			}
		}
	}
	return age
}

func (w *watcher) show(v seen) {
	news := fmt.Sprint(v.Redrive.State, stands(v.Redrive), v.Redrive.Matched, v.Redrive.RatePerSecond, v.Redrive.EndedAt.IsZero())
	if v.Redrive.Tally != nil {
		news += fmt.Sprint(*v.Redrive.Tally)
	}
	switch {
	case w.bar != nil:
		w.draw(v)
	case news == w.last:
	case w.s.json():
		_ = w.s.line(v) // a write's failure is looked for
	default:
		w.s.sayf("%s  %s", time.Now().UTC().Format("15:04:05Z"), watchLine(v))
	}
	w.last = news
}

// draw moves the bar. Another state, or another reason to stand still, is written above
// it in full, and stays.
func (w *watcher) draw(v seen) {
	stood := string(v.Redrive.State)
	if why := stands(v.Redrive); why != "" {
		stood += ": " + why
	}
	if stood != w.stood {
		w.bar.stay(time.Now().UTC().Format("15:04:05Z") + " " + clean(stood))
		w.stood = stood
	}
	w.bar.redraw(barLine(v, w.bar.room()))
}

// barWidth is that of the bar itself, on a line that has room for it.
const barWidth = 24

// barLine is a look in a line of so many characters: a bar, and of what can be said as
// much as fits, the most important first.
func barLine(v seen, room int) string {
	ended, all := progress(v.Redrive)
	wide := barWidth
	if room < 72 {
		wide = 8
	}
	full := 0
	if all > 0 {
		full = int(int64(wide) * ended / all)
	}
	line := "[" + strings.Repeat("#", full) + strings.Repeat("-", wide-full) + "] " + string(v.Redrive.State)
	for n, part := range barParts(v) {
		if n > 0 && utf8.RuneCountInString(line)+2+utf8.RuneCountInString(part) > room {
			break
		}
		line += "; " + part
	}
	return clean(line)
}

// barParts are what is said behind the bar. Why it stands is above it.
func barParts(v seen) []string {
	r := v.Redrive
	ended, all := progress(r)
	said := []string{fmt.Sprintf("%d of %d", ended, all)}
	if y := r.Tally; y != nil && !r.EndedAt.IsZero() {
		said = append(said, fmt.Sprintf("%d delivered", y.Delivered))
	}
	if y := r.Tally; y != nil && y.Dead > 0 {
		said = append(said, fmt.Sprintf("%d dead again", y.Dead))
	}
	if r.State == client.RedriveRunning {
		said = append(said, rateOf(r))
	}
	if y := r.Tally; y != nil {
		said = append(said, fmt.Sprintf("%d out", y.Out))
	}
	if v.Age != nil {
		said = append(said, "oldest eligible "+span(time.Duration(*v.Age*float64(time.Second))))
	}
	return said
}

func progress(r client.Redrive) (ended, all int64) {
	if y := r.Tally; y != nil {
		return y.Delivered + y.Dead + y.Cancelled + y.Over + y.LetGo, y.Claimed
	}
	return 0, r.Matched - r.Skipped
}

// watchLine is a look in words.
func watchLine(v seen) string {
	r := v.Redrive
	ended, all := progress(r)
	said := []string{string(r.State), fmt.Sprintf("%d of %d ended", ended, all)}
	if y := r.Tally; y != nil {
		said = append(said, fmt.Sprintf("%d delivered, %d dead again, %d out", y.Delivered, y.Dead, y.Out))
	}
	if r.State == client.RedriveRunning {
		said = append(said, rateOf(r))
	}
	if v.Age != nil {
		said = append(said, "oldest eligible "+span(time.Duration(*v.Age*float64(time.Second))))
	}
	if why := stands(r); why != "" {
		said = append(said, why)
	}
	return clean(strings.Join(said, "; "))
}

package oncall

import (
	"cmp"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/fanout/fanout/internal/delivery"
)

// hour is how far back the charts of the page reach.
const hour = time.Hour

// gapInPast is longer than two points of the history are apart.
const gapInPast = 4 * FineEvery

// What of a snapshot and a past the page shows beside verdict and ages.
type (
	answerView struct {
		Answer

		Word string
		Mark State // whose shape it has
		Seen []Evidence
	}
	releaseView struct {
		Curve    curve
		Sentence string
		Label    string
		End      string // the clock at the right end
	}
	slotsView struct {
		Sentence string
		Late     bool
		Pools    []poolView
		Groups   []Group
		Limits   string
	}
	poolView struct {
		Name  string
		Used  string
		Parts []part
	}
	failingView struct {
		Failing

		URL, DeliveryURL string
		Share            string
		Since            *stamp
	}
	deadView struct {
		Kept, Oldest, Arrived string
		Chart                 curve
		Highest               string
	}
	redriveView struct {
		LiveRedrive

		URL      string
		Word     string
		Mark     State
		Reason   string
		Sentence string
		Parts    []part
		Members  string
		Deeds    []deedView
		Canaries []canaryView
	}
	deedView   struct{ Action, Button, Ask, Token, Redrive string }
	canaryView struct{ ID, URL string }
	figure     struct{ Name, Value, Note string }
)

// local is where on this server a thing has its page: what the API has under /v1/ the
// pages have under /oncall/.
func local(link string) string {
	rest, found := strings.CutPrefix(link, "/v1/")
	if !found {
		return link
	}
	kind, _, _ := strings.Cut(rest, "/")
	if slices.Contains([]string{"subscribers", "deliveries", "events", "dead-letters", "redrives"}, kind) && rest != kind {
		return "/oncall/" + rest
	}
	return link
}

func pageOf(kind, id string) string { return "/oncall/" + kind + "/" + url.PathEscape(id) }

// answersOf puts the answers of triage into shapes and words.
func answersOf(t Triage) []answerView {
	var all []answerView
	for _, a := range t.Answers {
		if a.Question == "" {
			continue
		}
		v := answerView{Answer: a, Seen: foremost(shownEvidence(a.Evidence))}
		switch a.Says {
		case No:
			v.Word, v.Mark = "No", Within
		case Watch:
			v.Word, v.Mark = "Not yet", Starting
		case Yes:
			v.Word, v.Mark = "Yes", Breaching
		case Unknown:
			v.Word, v.Mark = "Not known", Blind
		}
		all = append(all, v)
	}
	return all
}

// maxSeen is how much evidence of an answer the page shows; the API has it all.
const maxSeen = 4

// foremost is the evidence that leads somewhere, then the rest, as far as there is room.
func foremost(all []Evidence) []Evidence {
	slices.SortStableFunc(all, func(a, b Evidence) int {
		return cmp.Compare(min(len(b.Link), 1), min(len(a.Link), 1))
	})
	return all[:min(len(all), maxSeen)]
}

// shownEvidence leads to pages, and cleans what a stranger may have said.
func shownEvidence(all []Evidence) []Evidence {
	out := make([]Evidence, len(all))
	for i, e := range all {
		out[i].Text, _ = clean(e.Text, maxSaid)
		out[i].Link = local(e.Link)
	}
	return out
}

// shownRelease draws the release curve against what the slots can carry in a minute.
func shownRelease(s Snapshot) *releaseView {
	if s.Release.From.IsZero() {
		return nil
	}
	perMinute := 60 * s.Fleet.Capacity
	v := releaseView{
		Curve: curveOf(s.Release.Due[:], perMinute),
		End:   stampOf(s.Release.From.Add(releaseMinutes * time.Minute)).Clock[:5],
	}
	minute, due := s.Release.peak(0)
	carries := "what the slots carry in a minute is not known yet"
	if perMinute > 0 {
		carries = "the slots carry about " + number(int64(perMinute)) + " a minute"
	}
	if due == 0 {
		v.Sentence = "Nothing falls due; " + carries + "."
	} else {
		at := stampOf(s.Release.From.Add(time.Duration(minute) * time.Minute)).Clock[:5]
		v.Sentence = fmt.Sprintf("At most %s fall due in a minute, the one from %s; %s.", number(due), at, carries)
	}
	v.Label = "Release curve of the next 15 minutes. " + v.Sentence
	return &v
}

// slotsOf shows who has the slots.
func slotsOf(f Fleet) *slotsView {
	if !f.Known {
		return nil
	}
	v := slotsView{Groups: slices.Clone(f.Groups)} // the snapshot is everybody's
	for i, g := range v.Groups {
		v.Groups[i].Version, _ = clean(g.Version, maxShort)
	}
	switch {
	case len(f.Workers) == 0:
		v.Sentence, v.Late = "No dispatcher has reported: none is running, or none reaches Redis.", true
		return &v
	case f.Slots > 0:
		v.Sentence = fmt.Sprintf("%s of %s slots are in use, and %.3g attempts a second end.", number(int64(f.Used)), number(int64(f.Slots)), f.PerSecond)
		v.Late = f.Used >= f.Slots
	}
	for _, pool := range pools {
		named := make([]part, 0, len(delivery.Lanes))
		for _, u := range f.Uses {
			if u.Pool == pool {
				named = append(named, part{Name: string(u.Lane), Width: float64(u.Used)})
			}
		}
		v.Pools = append(v.Pools, poolView{Name: pool, Used: number(int64(f.inPool(pool))), Parts: partsOf(int64(f.Slots), named...)})
	}
	v.Limits = fmt.Sprintf("At most %s for subscribers that take long, %s for retries, %s for redrives.",
		number(int64(f.SlowLimit)), number(int64(f.RetryLimit)), number(int64(f.RedriveLimit)))
	return &v
}

// maxShort is how many characters of a name are shown.
const maxShort = 48

func failingOf(f Fleet) []failingView {
	all := make([]failingView, 0, len(f.Failing))
	for _, one := range f.Failing {
		v := failingView{Failing: one, URL: pageOf("subscribers", one.SubscriberID), Share: fmt.Sprintf("%.0f %%", 100*one.Share)}
		if one.DeliveryID != "" {
			v.DeliveryURL = pageOf("deliveries", one.DeliveryID)
		}
		if !one.Since.IsZero() {
			at := stampOf(one.Since)
			v.Since = &at
		}
		all = append(all, v)
	}
	return all
}

// deadOf shows how dead letters came in the last hour.
func deadOf(s Snapshot, p Past) deadView {
	v := deadView{Kept: number(s.DeadLetters), Oldest: "none"}
	if s.OldestDead > 0 {
		v.Oldest = ageText(s.OldestDead)
	}
	const minutes = int(hour / time.Minute)
	var arrived, highest int64
	by := make([]int64, minutes) // of one in 5 s the eye makes a storm
	points := p.Last(hour, s.At)
	for i := 1; i < len(points); i++ {
		if points[i].At.Sub(points[i-1].At) > gapInPast {
			continue
		}
		n := max(0, points[i].Dead-points[i-1].Dead)
		minute := minutes - 1 - int(s.At.Sub(points[i].At)/time.Minute)
		if minute < 0 || minute >= minutes {
			continue
		}
		arrived += n
		by[minute] += n
		highest = max(highest, by[minute])
	}
	v.Arrived, v.Highest = number(arrived), number(highest)
	v.Chart = curveOf(by, 0)
	return v
}

// reachOf is how far back a line goes: an hour, or as far as there is anything, in steps
// that a person reads at a glance.
func reachOf(dots []dot, now time.Time) time.Duration {
	for _, reach := range []time.Duration{5 * time.Minute, 15 * time.Minute, 30 * time.Minute} {
		if len(dots) == 0 || now.Sub(dots[0].at) <= reach {
			return reach
		}
	}
	return hour
}

const actNow = "act now"

func words(d Diagnosis) string { return strings.ReplaceAll(string(d), "_", " ") }

// tagsOf say beside the verdict what is the matter, and whether it can wait.
func tagsOf(state State, t Triage) []string {
	if state == Blind || state == Starting {
		return nil // the word says it
	}
	tags := []string{words(t.Diagnosis)}
	switch {
	case t.Page:
		return append(tags, actNow)
	case state == Breaching:
		return append(tags, "look again in a minute")
	}
	return append(tags, "can wait until morning")
}

// agesIn are the ages of a class in the past, and now.
func agesIn(p Past, s Snapshot, c Class) []dot {
	points := p.Last(hour, s.At)
	dots := make([]dot, 0, len(points)+1)
	for _, one := range points {
		dots = append(dots, dot{one.At, one.Class(c.Name).Eligible.Seconds()})
	}
	if !s.At.IsZero() && (len(points) == 0 || s.At.After(points[len(points)-1].At)) {
		dots = append(dots, dot{s.At, c.Oldest().Eligible.Seconds()})
	}
	return dots
}

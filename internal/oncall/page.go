package oncall

import (
	"bytes"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"fmt"
	"html/template"
	"net/http"
	"path"
	"strconv"
	"strings"
	"time"
	"unicode"

	"github.com/fanout/fanout/internal/delivery"
)

//go:embed page.html static
var files embed.FS

// csp lets the page load its own files and open its own stream, and nothing else:
// no inline style or script, no other host, no frame. Its forms go to this server.
const csp = "default-src 'none'; style-src 'self'; script-src 'self'; connect-src 'self'; img-src 'self'; " +
	"base-uri 'none'; form-action 'self'; frame-ancestors 'none'"

// maxSaid is how many characters of a failure's words the page shows.
const maxSaid = 240

// Visitor is who looks at the page.
type Visitor struct {
	// Name and Role are shown; "" while there are no keys.
	Name, Role string
	// Acts says that he may steer redrives, SignedIn that he can sign out.
	Acts, SignedIn bool
	// Token must be in every form that he sends.
	Token string
}

// nobody is a visitor of whom nothing is known.
func nobody(*http.Request) Visitor { return Visitor{} }

// The page as its template sees it.
type (
	view struct {
		Visitor

		State       State
		Word        string
		Sentence    string
		Matter      string   // the diagnosis in words, with Runbook
		Runbook     string   // the section of docs/runbook.md to follow; empty if there is none
		Steady      string   // what a screen reader says when it changes
		Tags        []string // what is the matter, and whether it can wait
		Beside      []Evidence
		Sampled     *stamp // nil before the first sample
		Stale       string // empty while fresh
		Classes     []classView
		Answers     []answerView
		Release     *releaseView // nil while it is not known
		Slots       *slotsView   // likewise
		Failing     []failingView
		MoreFailing string // empty if Failing are all
		Dead        deadView
		Redrives    []redriveView
		Ledger      ledgerView
		Figures     []figure
		Counts      []count
		Holds       []heldView
		MoreHolds   string // empty if Holds are all
		Failures    []failureView
		Refresh     int   // seconds, for browsers without script
		Patience    int64 // ms without an event before the page says so
	}
	stamp     struct{ Machine, Day, Clock string }
	classView struct {
		Class
		Age, SLOText string
		Lane         delivery.Lane // whose age it is; empty if nothing waits
		Bar          bar
		Spark        spark
		SparkMax     string
		Since        string // how far back the line reaches
		Rows         []laneView
	}
	laneView struct {
		Lane                    delivery.Lane
		Eligible, Limited, Held cell
	}
	cell struct {
		Text       string
		None, Late bool
	}
	ledgerView struct {
		Accepted, Pending, Leased, Waiting, Delivered, Dead, Cancelled string

		Expired   string // empty if there are none
		Balanced  bool
		Imbalance string
	}
	count       struct{ Name, Value string }
	failureView struct {
		Failure
		When stamp
		Text string
		Cut  bool // Text is not all of it
		// The pages of its evidence, its event and its subscriber.
		DeliveryURL, EventURL, SubscriberURL string
	}
)

func parsePage() (*template.Template, error) {
	t, err := template.ParseFS(files, "page.html")
	if err != nil {
		return nil, fmt.Errorf("parse the on-call page: %w", err)
	}
	return t, nil
}

// Page serves the page at /oncall and its files at /oncall/static/: mount it on
// both. The page needs no script: without it, it reloads itself.
func (o *OnCall) Page() http.Handler { return o.PageFor(nobody) }

// PageFor is Page for whom visitor tells: with his name, and with the forms that he may
// use.
func (o *OnCall) PageFor(visitor func(*http.Request) Visitor) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h := w.Header()
		h.Set("Content-Security-Policy", csp)
		h.Set("X-Content-Type-Options", "nosniff")
		h.Set("Referrer-Policy", "same-origin") // under no-referrer a form would have no Origin
		if strings.Contains(r.URL.Path, "/static/") {
			serveStatic(w, r)
			return
		}
		o.mu.Lock()
		v := o.view(visitor(r))
		o.mu.Unlock()
		var b bytes.Buffer // drawn whole first: half a page with status 200 helps nobody
		if err := o.page.ExecuteTemplate(&b, "page", v); err != nil {
			o.log.ErrorContext(r.Context(), "cannot draw the on-call page", "error", err)
			http.Error(w, "cannot draw the page", http.StatusInternalServerError)
			return
		}
		h.Set("Content-Type", "text/html; charset=utf-8")
		h.Set("Cache-Control", "no-store")
		_, _ = w.Write(b.Bytes()) // the client is gone
	})
}

// serveStatic serves an embedded file. They are few and small, so they are named
// by their content instead of being given a lifetime.
func serveStatic(w http.ResponseWriter, r *http.Request) {
	name := path.Base(r.URL.Path)
	content, err := files.ReadFile("static/" + name)
	if err != nil {
		http.NotFound(w, r)
		return
	}
	sum := sha256.Sum256(content)
	w.Header().Set("ETag", `"`+hex.EncodeToString(sum[:8])+`"`)
	w.Header().Set("Cache-Control", "no-cache") // ask, and mostly be told 304
	http.ServeContent(w, r, name, time.Time{}, bytes.NewReader(content))
}

// view puts the last snapshot into words. The caller holds o.mu.
func (o *OnCall) view(visitor Visitor) view {
	s := o.latest
	verdict, triage := Judge(s, o.sight(), o.blindAfter), o.triage()
	v := view{
		Visitor: visitor,
		State:   verdict.State, Word: verdict.State.Word(),
		Refresh: max(2, int(o.every.Seconds())), Patience: o.blindAfter.Milliseconds(),
	}
	v.say(verdict, triage)
	if verdict.sampled {
		at := stampOf(s.At)
		v.Sampled = &at
	}
	if verdict.State == Blind {
		v.Stale = ageText(verdict.Stale)
	}
	for _, c := range s.shown() {
		v.Classes = append(v.Classes, classViewOf(c, agesIn(o.past, s, c), s.At, max(gapInPast, 3*o.every)))
	}
	v.Release, v.Slots, v.Failing = shownRelease(s), slotsOf(s.Fleet), failingOf(s.Fleet)
	if more := s.Fleet.FailingTotal - len(v.Failing); more > 0 {
		v.MoreFailing = number(int64(more))
	}
	v.Dead, v.Redrives = deadOf(s, o.past), redrivesOf(s.Redrives, visitor)
	v.Ledger, v.Counts, v.Figures = ledgerViewOf(s), countsOf(s), figuresOf(s)
	for _, h := range s.Holds {
		v.Holds = append(v.Holds, heldViewOf(h))
	}
	if more := s.OnHold - int64(len(s.Holds)); more > 0 && len(s.Holds) == maxHolds {
		v.MoreHolds = number(more)
	}
	for _, f := range s.Failures {
		text, cut := clean(f.Said, maxSaid)
		v.Failures = append(v.Failures, failureView{
			f, stampOf(f.At), text, cut,
			pageOf("dead-letters", f.DeliveryID), pageOf("events", f.EventID), pageOf("subscribers", f.SubscriberID),
		})
	}
	return v
}

// say puts verdict and triage into the sentences at the top.
func (v *view) say(verdict Verdict, t Triage) {
	steady, _ := verdict.Sentence()
	v.Steady, v.Sentence = steady, t.Sentence
	if t.Diagnosis != Healthy && t.Diagnosis != NotSampled {
		v.Runbook = strings.ReplaceAll(t.Runbook, "_", "-")
		v.Matter, v.Tags = words(t.Diagnosis), tagsOf(verdict.State, t)
	}
	v.Answers, v.Beside = answersOf(t), shownEvidence(t.Notes)
}

func countsOf(s Snapshot) []count {
	return []count{
		{"subscriber lanes ready for a turn", number(s.Ready)},
		{"at their own cap or rate", number(s.Limited)},
		{"with nothing due", number(s.Scheduled)},
		{"subscribers on hold", number(s.OnHold)},
		{"deliveries that wait for them", number(s.Held)},
		{"events not expanded yet", number(s.OpenEvents)},
		{"events set aside, not expanded", number(s.LateEvents)},
		{"found missing by the reconciliation", number(gapsOf(s.Gaps))},
	}
}

// figuresOf are what is worth a glance and no chart.
func figuresOf(s Snapshot) []figure {
	all := []figure{{Name: "a look at Redis takes", Value: ageText(s.Took)}}
	if s.Fleet.RedisLatency > 0 {
		all = append(all, figure{Name: "a call by a dispatcher", Value: ageText(s.Fleet.RedisLatency)})
	}
	if s.Memory.Used > 0 {
		f := figure{Name: "memory of Redis", Value: bytesText(s.Memory.Used), Note: "without a limit"}
		if s.Memory.Max > 0 {
			f.Note = fmt.Sprintf("of %s, %d %%", bytesText(s.Memory.Max), 100*s.Memory.Used/s.Memory.Max)
		}
		all = append(all, f)
	}
	return all
}

func bytesText(n int64) string {
	const mib = 1 << 20
	if n < 1<<30 {
		return fmt.Sprintf("%d MiB", (n+mib-1)/mib)
	}
	return fmt.Sprintf("%.1f GiB", float64(n)/(1<<30))
}

func ledgerViewOf(s Snapshot) ledgerView {
	expired := ""
	if s.Expired > 0 {
		expired = number(s.Expired)
	}
	return ledgerView{
		Expired:  expired,
		Accepted: number(s.Ledger.Accepted), Pending: number(s.Ledger.Pending), Delivered: number(s.Ledger.Delivered),
		Dead: number(s.Ledger.Dead), Cancelled: number(s.Ledger.Cancelled),
		// Leases are counted beside the ledger, a moment apart on a cluster.
		Leased: number(max(0, s.Leases-s.Expired)), Waiting: number(max(0, s.Ledger.Pending-s.Leases)),
		Balanced: s.Imbalance() == 0, Imbalance: fmt.Sprintf("%+d", s.Imbalance()),
	}
}

func classViewOf(c Class, ages []dot, now time.Time, gap time.Duration) classView {
	reach := reachOf(ages, now)
	s := sparkOf(ages, c.SLO.Seconds(), now, reach, gap)
	oldest := c.Oldest()
	cv := classView{
		Class: c, Age: ageText(oldest.Eligible), SLOText: sloText(c.SLO),
		Bar: barOf(oldest.Eligible, c.SLO), Spark: s, SparkMax: ageText(time.Duration(s.Max * float64(time.Second))), Since: sloText(reach) + " ago",
	}
	if oldest.Eligible > 0 {
		cv.Lane = oldest.Name
	}
	for _, l := range c.Lanes {
		cv.Rows = append(cv.Rows, laneView{
			l.Name, cellOf(l.Eligible, l.Eligible > c.SLO), cellOf(l.Limited, false), cellOf(l.Held, false),
		})
	}
	return cv
}

func cellOf(age time.Duration, late bool) cell { return cell{ageText(age), age == 0, late} }

// stampOf writes a time in UTC, so that two people on call read the same.
func stampOf(t time.Time) stamp {
	t = t.UTC()
	return stamp{t.Format(time.RFC3339), t.Format("2 Jan"), t.Format("15:04:05")}
}

// number groups digits by thousands.
func number(n int64) string {
	s := strconv.FormatInt(n, 10)
	for i := len(s) - 3; i > 0 && s[i-1] != '-'; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}

// clean makes a stranger's text fit to look at: at most limit characters, no line
// ends, control or format characters. The template escapes what HTML would read;
// this is about what a person would: U+202E turns the rest of a line around.
func clean(s string, limit int) (text string, cut bool) {
	var b strings.Builder
	n, space := 0, false
	for _, r := range s {
		if unicode.IsSpace(r) || unicode.IsControl(r) {
			space = n > 0
			continue
		}
		if unicode.Is(unicode.Cf, r) {
			continue
		}
		if n >= limit {
			return b.String() + "…", true
		}
		if space {
			b.WriteByte(' ')
			n++
		}
		space = false
		b.WriteRune(r)
		n++
	}
	return b.String(), false
}

package cli

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/fanout/fanout/internal/webhook"
)

const (
	maxBody   = 1 << 20 // bytes; the service sends at most 256 KiB of data
	readTime  = 30 * time.Second
	maxIDs    = 10_000 // webhook ids that are remembered
	unchecked = "not verified: no secret"
)

// receiver shows the webhooks that come, and answers each by its manners.
type receiver struct {
	s      *session
	flags  *listenCmd
	secret string
	stop   func() // nobody reads what is shown

	mu      sync.Mutex
	seen    map[string]int // times that a webhook-id came
	order   []string       // of seen, oldest first
	came    int
	again   int
	refused int // not by the secret
}

func newReceiver(s *session, flags *listenCmd, secret string) *receiver {
	return &receiver{s: s, flags: flags, secret: secret, seen: map[string]int{}}
}

// received is a webhook, as -o json shows it.
type received struct {
	At        time.Time `json:"at"`
	WebhookID string    `json:"webhook_id"`
	Attempt   int       `json:"attempt,omitempty"`
	Times     int       `json:"times"` // that this id came, this one included
	// By this machine's clock: since webhook-timestamp, which is made anew for each
	// attempt and has whole seconds, and since what the event tells of happened.
	Signed   *int64          `json:"signed_seconds_ago,omitempty"`
	Occurred *float64        `json:"occurred_seconds_ago,omitempty"`
	Type     string          `json:"type,omitempty"`
	EventID  string          `json:"event_id,omitempty"`
	Verified bool            `json:"verified"`
	Why      string          `json:"why,omitempty"` // it is not
	Answer   int             `json:"answer"`        // 0: none
	Body     json.RawMessage `json:"body,omitempty"`
	Text     string          `json:"text,omitempty"` // of a body that is not JSON
}

// ServeHTTP takes one webhook.
func (r *receiver) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	if req.Method != http.MethodPost {
		w.Header().Set("Allow", http.MethodPost)
		w.WriteHeader(http.StatusMethodNotAllowed)
		return
	}
	body, err := io.ReadAll(http.MaxBytesReader(w, req.Body, maxBody))
	if err != nil {
		w.WriteHeader(http.StatusRequestEntityTooLarge)
		r.s.notef("A request's body could not be read: %v", err)
		return
	}
	a := r.flags.draw()
	r.take(req.Header, body, a, time.Now())
	r.flags.give(req.Context(), w, a)
}

// take shows a webhook before it is answered: one that hangs would else be seen late.
func (r *receiver) take(h http.Header, body []byte, a answer, now time.Time) {
	one := received{At: now.UTC(), WebhookID: h.Get(webhook.HeaderID), Why: r.why(h, body, now), Answer: a.status}
	one.Verified = one.Why == ""
	one.Attempt, _ = strconv.Atoi(h.Get("Fanout-Attempt"))
	if seconds, err := strconv.ParseInt(h.Get(webhook.HeaderTimestamp), 10, 64); err == nil {
		one.Signed = new(now.Unix() - seconds)
	}
	var head struct {
		Type     string `json:"type"`
		EventID  string `json:"event_id"`
		Occurred string `json:"timestamp"` // the event's occurred_at, by its name in Standard Webhooks
	}
	if json.Valid(body) {
		_ = json.Unmarshal(body, &head) // a body of another shape has neither
		one.Body = body
	} else {
		one.Text = string(body)
	}
	one.Type, one.EventID = head.Type, head.EventID
	if at, err := time.Parse(time.RFC3339, head.Occurred); err == nil {
		one.Occurred = new(now.Sub(at).Seconds())
	}

	r.mu.Lock()
	defer r.mu.Unlock()
	one.Times = r.count(one.WebhookID)
	r.came++
	if one.Times > 1 {
		r.again++
	}
	if !one.Verified && r.secret != "" {
		r.refused++
	}
	r.print(one, a)
	if r.s.out.failure() != nil {
		r.stop()
	}
}

// why says what is wrong with the signature; "" if it is right.
func (r *receiver) why(h http.Header, body []byte, now time.Time) string {
	if r.secret == "" {
		return unchecked
	}
	if err := webhook.Verify(r.secret, h, body, now); err != nil {
		return "NOT VERIFIED: " + err.Error()
	}
	return ""
}

// count remembers an id, and lets go of the oldest.
func (r *receiver) count(id string) int {
	if id == "" {
		return 1
	}
	r.seen[id]++
	if r.seen[id] == 1 {
		r.order = append(r.order, id)
		if len(r.order) > maxIDs {
			delete(r.seen, r.order[0])
			r.order = r.order[1:]
		}
	}
	return r.seen[id]
}

func (r *receiver) print(one received, a answer) {
	if r.s.json() {
		_ = r.s.line(one) // a write's failure is looked for
		return
	}
	verified := "verified"
	if !one.Verified {
		verified = one.Why
	}
	times := ""
	if one.Times > 1 {
		times = fmt.Sprintf("  again (%d times)", one.Times)
	}
	name := one.WebhookID
	if name == "" {
		name = "(no webhook-id)"
	}
	r.s.sayf("%s", clean(fmt.Sprintf("%s  %s  attempt %d%s%s  %s  %s  -> %s", one.At.Format("15:04:05Z"), oneLine(name, 80),
		one.Attempt, times, one.since(), oneLine(one.Type, 80), verified, a)))
	if r.flags.BodyLimit > 0 {
		r.s.sayf("%s", indent(one, r.flags.BodyLimit))
	}
}

// since says how long ago it was signed, and how long ago that happened which it tells
// of: a retry is signed anew, so that only the second grows with it.
func (one received) since() string {
	text := ""
	if one.Signed != nil {
		text += "  signed " + roughly(float64(*one.Signed))
	}
	if one.Occurred != nil {
		text += "  occurred " + roughly(*one.Occurred)
	}
	return text
}

// roughly is told no finer than whole seconds, which is what webhook-timestamp has.
func roughly(seconds float64) string {
	switch d := time.Duration(seconds) * time.Second; {
	case d < 0:
		return span(-d) + " ahead of this clock"
	case d == 0:
		return "under 1s ago"
	default:
		return span(d) + " ago"
	}
}

// indent is a body for a person, up to so many bytes of it.
func indent(one received, limit int) string {
	text := []byte(one.Text)
	if one.Body != nil {
		var b bytes.Buffer
		_ = json.Indent(&b, one.Body, "", "  ") // it is valid
		text = b.Bytes()
	}
	left := ""
	if len(text) > limit {
		left = fmt.Sprintf("\n... and %s more (--body-limit)", count(len(text)-limit, "byte", "bytes"))
		text = bytes.ToValidUTF8(text[:limit], nil)
	}
	return "    " + strings.ReplaceAll(clean(string(text)+left), "\n", "\n    ")
}

// total is what all came to.
func (r *receiver) total() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.s.notef("%s came, %d of them again, %d not verified.", count(r.came, "webhook", "webhooks"), r.again, r.refused)
}

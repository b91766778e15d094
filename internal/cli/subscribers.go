package cli

import (
	"context"
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/fanout/fanout/client"
)

// subscribersCmd are the commands about subscribers.
type subscribersCmd struct {
	Ls           subscribersLs       `cmd:"" help:"List subscribers, by id."`
	Show         subscribersShow     `cmd:"" help:"Show one: what it gets, how it is tried, whether it is on hold."`
	Create       subscribersCreate   `cmd:"" help:"Register an endpoint. Its signing secret is printed, this once."`
	Patch        subscribersPatch    `cmd:"" help:"Change what is given. Every attempt from then on uses it."`
	Rm           subscribersRm       `cmd:"" help:"Delete one, and cancel what waits for it."`
	Pause        subscribersPause    `cmd:"" help:"Put one on hold: its deliveries wait, none is lost."`
	Resume       subscribersResume   `cmd:"" help:"End the holds that a person can end."`
	Test         subscribersTest     `cmd:"" help:"Send an event of type fanout.test to this subscriber alone."`
	RotateSecret subscribersRotate   `cmd:"" help:"Make a new signing secret; the old ones go on signing for a while."`
	Schedule     subscribersSchedule `cmd:"" help:"Show when its policy would attempt a delivery that always fails."`
	Stats        subscribersStats    `cmd:"" help:"Show how its deliveries stand at this moment."`
}

type subscribersLs struct {
	listing

	Account string `help:"Only those of this account."`
	Class   string `help:"Only those of this class."`
}

// Run lists subscribers.
func (l *subscribersLs) Run(ctx context.Context, s *session) error {
	f := client.SubscriberFilter{Account: l.Account, Class: l.Class}
	return list(ctx, s, l.listing, func(ctx context.Context, c *client.Client, p client.Page) (client.List[client.Subscriber], error) {
		return c.ListSubscribers(ctx, f, p)
	}, func(t *table, subs []client.Subscriber) { subscriberTable(t, subs, time.Now()) })
}

func subscriberTable(t *table, subs []client.Subscriber, now time.Time) {
	t.header("ID", "NAME", "ACCOUNT", "CLASS", "TYPES", "SERVED", "PENDING", "CREATED", "URL")
	for _, sub := range subs {
		pending := ""
		if sub.Status != nil {
			pending = fmt.Sprint(sub.Status.Pending)
		}
		t.row(sub.ID, oneLine(sub.Name, 24), sub.Account, sub.Class, oneLine(strings.Join(sub.Filter.Types, ","), 40),
			served(sub), pending, when(sub.CreatedAt, now), endpointOf(sub.URL))
	}
}

// served says in a word or two whether it is sent to.
func served(sub client.Subscriber) string {
	if sub.Status == nil {
		if sub.Paused {
			return "on hold: paused"
		}
		return ""
	}
	var reasons []string
	for _, h := range sub.Status.Holds {
		reasons = append(reasons, string(h.Reason))
	}
	if len(reasons) == 0 {
		return "sending"
	}
	return "on hold: " + strings.Join(reasons, ", ")
}

// endpointOf is an endpoint's address without its query, which may hold a token.
func endpointOf(raw string) string {
	u, err := url.Parse(raw)
	if err != nil {
		return "(not readable)"
	}
	query := u.RawQuery != ""
	u.RawQuery, u.User, u.Fragment = "", nil, ""
	if query {
		return oneLine(u.String(), 60) + "?…"
	}
	return oneLine(u.String(), 60)
}

type subscribersShow struct {
	ID subscriberID `arg:"" help:"The subscriber's id." name:"subscriber"`
}

// Run shows one subscriber.
func (l *subscribersShow) Run(ctx context.Context, s *session) error {
	sub, err := ask(ctx, s, func(ctx context.Context, c *client.Client) (client.Subscriber, error) {
		return c.GetSubscriber(ctx, string(l.ID))
	})
	if err != nil {
		return err
	}
	return s.show(func(t *table) { subscriberRows(t, sub, time.Now()) })
}

func subscriberRows(t *table, sub client.Subscriber, now time.Time) {
	t.row("id", sub.ID)
	t.maybe("name", sub.Name)
	t.row("account", sub.Account)
	t.row("class", sub.Class)
	t.row("url", endpointOf(sub.URL))
	t.row("types", strings.Join(sub.Filter.Types, ", "))
	for _, name := range slices.Sorted(maps.Keys(sub.Filter.Attributes)) {
		t.row("attribute "+name, strings.Join(sub.Filter.Attributes[name], " or "))
	}
	for _, name := range slices.Sorted(maps.Keys(sub.Headers)) {
		t.row("header "+name, "(hidden)")
	}
	t.row("version", fmt.Sprint(sub.Version))
	t.row("created", when(sub.CreatedAt, now))
	t.row("changed", when(sub.UpdatedAt, now))
	for _, secret := range sub.Secrets {
		t.row("secret "+secret.ID, secretLife(secret, now))
	}
	policyRows(t, sub.Policy)
	statusRows(t, sub, now)
	for _, w := range sub.Warnings {
		t.row("warning", w)
	}
}

func secretLife(secret client.SecretInfo, now time.Time) string {
	text := "made " + when(secret.CreatedAt, now)
	if !secret.ExpiresAt.IsZero() {
		text += fmt.Sprintf(", signs until %s (%s)", stamp(secret.ExpiresAt), ago(secret.ExpiresAt, now))
	}
	if secret.PublicKey != "" {
		text += ", verified by " + secret.PublicKey
	}
	return text
}

func policyRows(t *table, p client.Policy) {
	t.row("attempts", fmt.Sprintf("at most %d, each of at most %s, none later than %s after acceptance", p.MaxAttempts, p.AttemptTimeout, p.MaxAge))
	t.row("backoff", fmt.Sprintf("drawn from a window of %s, doubled each time up to %s; Retry-After is obeyed up to %s", p.BackoffBase, p.BackoffCap, p.RetryAfterCap))
	rate := "no rate limit"
	if p.RatePerSecond > 0 {
		rate = fmt.Sprintf("%g a second", p.RatePerSecond)
	}
	t.row("pace", fmt.Sprintf("at most %d at once, %s; breaker after %s in a row; up to %d wait on hold", p.MaxInFlight, rate, count(p.BreakerFailures, "failure", "failures"), p.MaxHeld))
	for _, status := range slices.Sorted(maps.Keys(p.Classify)) {
		t.row("status "+status, "counts as "+p.Classify[status])
	}
}

// thatTime follows a hold's note, which names a time of the clock, with how far off that
// is; "" if there is none.
func thatTime(h client.Hold, now time.Time) string {
	switch {
	case h.Until.IsZero() || h.Probe != "": // a note of a probe that is out names none
		return ""
	case h.Until.After(now):
		return " That time is " + when(h.Until, now) + "."
	}
	return " That time has come (" + stamp(h.Until) + ")."
}

func statusRows(t *table, sub client.Subscriber, now time.Time) {
	st := sub.Status
	t.row("served", served(sub))
	if st == nil {
		return
	}
	for _, h := range st.Holds {
		t.row("hold "+string(h.Reason), h.Note+thatTime(h, now))
	}
	t.row("in flight", fmt.Sprintf("%d of %d", st.InFlight, st.InFlightCap))
	t.row("pending", fmt.Sprintf("%d (waiting: %d fresh, %d retry, %d redrive)", st.Pending, st.Waiting.Fresh, st.Waiting.Retry, st.Waiting.Redrive))
	if st.ConsecutiveFailures > 0 {
		t.row("failures in a row", fmt.Sprint(st.ConsecutiveFailures))
	}
	if st.LatencyMS > 0 {
		t.row("latency", fmt.Sprintf("%dms", st.LatencyMS))
	}
}

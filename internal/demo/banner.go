package demo

import (
	"fmt"
	"strings"
)

// getsWidth is of the column of filters, in characters.
const getsWidth = 29

// banner says what runs, where to look, who is who, and how to read the lines.
func (p *play) banner() {
	s := p.screen
	var b strings.Builder
	line := func(format string, a ...any) { fmt.Fprintf(&b, format+"\n", a...) }

	line("")
	line("%s  the whole service in one process, with endpoints to send to", s.paint("fanout dev", bold))
	line("")
	line("  page       %s", s.paint(p.o.PageURL, bold))
	line("  API        %s/v1   contract: %s/openapi.yaml", p.o.BaseURL, p.o.BaseURL)
	if p.o.State != "" {
		line("  state      %s", p.o.State)
	}
	line("  receivers  %s, and each verifies every signature:", p.receivers.base)
	line("")
	line("  %s", s.paint(pad("SUBSCRIBER", nameWidth)+" "+pad("GETS", getsWidth)+" ITS ENDPOINT", dim))
	for _, rc := range p.receivers.list {
		r := rc.role
		line("  %s %s %s", s.paint(pad(r.name, nameWidth), mood(r.manner)), pad(r.gets, getsWidth), r.does)
	}
	line("")
	line("  One line for each attempt: %s, %s with its backoff, or %s with its",
		s.paint("✓ delivered", green), s.paint("↻ retry", yellow), s.paint("✗ dead letter", red))
	line("  evidence (in full: GET /v1/deliveries/{id}); then who, what, attempt/budget, the answer,")
	line("  and %s where the receiver found the signature right. An endpoint that fails too often in", verified)
	line("  a row is given a rest: %s; a probe now and then, until one is answered.", s.paint("◌ breaker open", yellow))
	line("")
	line("  posting %d events, one every %s", len(p.events), p.o.Pace)
	line("")
	s.sayf("%s", b.String())
}

func mood(m manner) string {
	switch m {
	case flaky:
		return yellow
	case hanging, failing, rejecting:
		return red
	default:
		return green
	}
}

// summary is one row for each subscriber, and what becomes of the play now.
func (p *play) summary(f facts) {
	s := p.screen
	var b strings.Builder
	line := func(format string, a ...any) { fmt.Fprintf(&b, format+"\n", a...) }
	row := func(name string, code string, cells ...any) {
		b.WriteString("  " + s.paint(pad(name, nameWidth), code))
		for _, c := range cells {
			fmt.Fprintf(&b, " %10v", c)
		}
		b.WriteByte('\n')
	}

	dead := map[string]int{}
	for _, d := range f.dead {
		dead[d.Delivery.SubscriberID]++
	}
	line("")
	row("SUBSCRIBER", dim, "received", "verified", "delivered", "retries", "dead", "opened", "on hold")
	healthyIDs, healthyRetries, opened := 0, 0, 0
	for _, w := range f.endpoints {
		t := w.tally
		hold := ""
		if len(w.standing.holds) > 0 {
			hold = string(w.standing.holds[0].Reason)
		}
		row(w.role.name, mood(w.role.manner), t.requests, t.verified, t.delivered, t.verified-t.ids, dead[w.subscriberID],
			w.standing.opened, hold)
		opened += w.standing.opened
		if w.role.manner == healthy {
			healthyIDs += t.delivered
			healthyRetries += t.verified - t.ids
		}
	}
	t := f.total()
	row("all", bold, t.requests, t.verified, t.delivered, t.verified-t.ids, len(f.dead), opened, "")
	line("")
	if healthyRetries == 0 {
		line("  The healthy endpoints got all their %d deliveries at once: the others cost them nothing.", healthyIDs)
	}
	l := f.ledger
	line("  Ledger: %d accepted = %d pending + %d delivered + %d dead + %d cancelled",
		l.Accepted, l.Pending, l.Delivered, l.Dead, l.Cancelled)
	if !p.o.End {
		line("")
		line("  From here on an event every %s. Look at %s; Ctrl-C ends it.", p.o.LivePace, s.paint(p.o.PageURL, bold))
	}
	line("")
	s.sayf("%s", b.String())
}

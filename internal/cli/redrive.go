package cli

import (
	"context"
	"time"

	"github.com/fanout/fanout/client"
)

// redriveCmd are the commands about redrives.
type redriveCmd struct {
	Plan    redrivePlan    `cmd:"" help:"Say what a redrive would take, and change nothing."`
	Start   redriveStart   `cmd:"" help:"Claim dead letters and send the first of them, the canary. --reason is needed."`
	Ls      redriveLs      `cmd:"" help:"List redrives, newest first."`
	Show    redriveShow    `cmd:"" help:"Show one with its tally, and what the receiver answered to the canary."`
	Approve redriveApprove `cmd:"" help:"Let the others go, once you have seen what the canary did at the receiver."`
	Pause   redrivePause   `cmd:"" help:"Stop the release; what is out goes on. --reason is needed."`
	Resume  redriveResume  `cmd:"" help:"Go on where it was paused, slowly again."`
	Abort   redriveAbort   `cmd:"" help:"Let go of what was not released. --reason is needed."`
	Watch   redriveWatch   `cmd:"" help:"Follow one: progress, rate, the age of what waits, and why it stands still."`
}

type redrivePlan struct{ order }

// Run shows what a redrive would take.
func (l *redrivePlan) Run(ctx context.Context, s *session) error {
	reason := s.Reason
	if reason == "" {
		reason = "a plan" // nothing is written down of it
	}
	o, err := l.order.order(reason)
	if err != nil {
		return err
	}
	p, err := ask(ctx, s, func(ctx context.Context, c *client.Client) (client.RedrivePreview, error) {
		return c.PreviewRedrive(ctx, o)
	})
	if err != nil {
		return err
	}
	if err := s.show(func(t *table) { previewRows(t, p) }); err != nil {
		return err
	}
	if s.json() {
		if p.Matching == 0 {
			l.nothingMatches(ctx, s)
		}
		return nil
	}
	if len(p.BySubscriber) > 0 {
		s.sayf("")
		s.table(func(t *table) { shareTable(t, p) })
		s.sayf("")
		s.table(func(t *table) { causeTable(t, p) })
	}
	for _, w := range p.Warnings {
		s.sayf("warning: %s", clean(w))
	}
	if p.Matching == 0 {
		l.nothingMatches(ctx, s)
	}
	return nil
}

type redriveStart struct{ order }

// Run makes a redrive.
func (l *redriveStart) Run(ctx context.Context, s *session) error {
	if s.Reason == "" {
		return usage("say why, for the audit: --reason")
	}
	o, err := l.order.order(s.Reason)
	if err != nil {
		return err
	}
	r, err := ask(ctx, s, func(ctx context.Context, c *client.Client) (client.Redrive, error) { return c.CreateRedrive(ctx, o) })
	if err != nil {
		return s.doubted(err, "It may have been made, and its canary sent. Look before you start another: fanout redrive ls")
	}
	made := s.answer.last // which is what -o json shows
	l.suspect(ctx, s)
	s.answer.last = made
	s.notef("The canary is sent next. Follow it: fanout redrive watch %s", r.ID)
	s.notef("Look at what it did at the receiver, then: fanout redrive approve %s --effect='what you have checked'", r.ID)
	return s.show(func(t *table) { redriveRows(t, r, time.Now()) })
}

type redriveLs struct{ listing }

// Run lists redrives.
func (l *redriveLs) Run(ctx context.Context, s *session) error {
	return list(ctx, s, l.listing, func(ctx context.Context, c *client.Client, p client.Page) (client.List[client.Redrive], error) {
		return c.ListRedrives(ctx, p)
	}, func(t *table, all []client.Redrive) { redriveTable(t, all, time.Now()) })
}

// one names a redrive.
type one struct {
	ID redriveID `arg:"" help:"The redrive's id." name:"redrive"`
}

type redriveShow struct{ one }

// Run shows a redrive.
func (l *redriveShow) Run(ctx context.Context, s *session) error {
	r, err := getRedrive(ctx, s, string(l.ID))
	if err != nil {
		return err
	}
	now := time.Now()
	if err := s.show(func(t *table) { redriveRows(t, r, now) }); err != nil || s.json() {
		return err
	}
	for _, d := range r.CanaryDeliveries {
		s.sayf("\ncanary %s: %s", clean(d.ID), canarySays(d))
		if len(d.Evidence) > 0 {
			s.table(func(t *table) { attemptTable(t, d.Evidence, now) })
		}
	}
	return nil
}

func getRedrive(ctx context.Context, s *session, id string) (client.Redrive, error) {
	return ask(ctx, s, func(ctx context.Context, c *client.Client) (client.Redrive, error) { return c.GetRedrive(ctx, id) })
}

type redriveApprove struct {
	one

	Effect string `help:"What you have checked at the receiver, in a sentence: it stands in the audit." placeholder:"TEXT" required:"true"`
}

// Run approves.
func (l *redriveApprove) Run(ctx context.Context, s *session) error {
	return l.steer(ctx, s, func(ctx context.Context, c *client.Client) (client.Redrive, error) {
		return c.ApproveRedrive(ctx, string(l.ID), l.Effect)
	})
}

type redrivePause struct{ one }

// Run pauses.
func (l *redrivePause) Run(ctx context.Context, s *session) error {
	if s.Reason == "" {
		return usage("say why, for the audit: --reason")
	}
	return l.steer(ctx, s, func(ctx context.Context, c *client.Client) (client.Redrive, error) {
		return c.PauseRedrive(ctx, string(l.ID), s.Reason)
	})
}

type redriveResume struct{ one }

// Run resumes.
func (l *redriveResume) Run(ctx context.Context, s *session) error {
	if s.Reason == "" {
		return usage("say what has changed, for the audit: --reason")
	}
	return l.steer(ctx, s, func(ctx context.Context, c *client.Client) (client.Redrive, error) {
		return c.ResumeRedrive(ctx, string(l.ID), s.Reason)
	})
}

type redriveAbort struct {
	one

	Yes bool `help:"Do not ask." short:"y"`
}

// Run aborts.
func (l *redriveAbort) Run(ctx context.Context, s *session) error {
	if s.Reason == "" {
		return usage("say why, for the audit: --reason")
	}
	if err := s.confirm(ctx, l.Yes, "Abort "+string(l.ID)+"? It cannot be gone on with; what was not sent stays a dead letter."); err != nil {
		return err
	}
	return l.steer(ctx, s, func(ctx context.Context, c *client.Client) (client.Redrive, error) {
		return c.AbortRedrive(ctx, string(l.ID), s.Reason)
	})
}

// steer changes a redrive and shows it.
func (l *one) steer(ctx context.Context, s *session, how func(context.Context, *client.Client) (client.Redrive, error)) error {
	r, err := ask(ctx, s, how)
	if err != nil {
		return s.doubted(err, "See how it stands: fanout redrive show "+string(l.ID))
	}
	return s.show(func(t *table) { redriveRows(t, r, time.Now()) })
}

package oncall

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/fanout/fanout/internal/schedule"
)

const (
	// readyEvery is how often Ready is asked at most, and readyTimeout bounds one
	// answer. It is asked beside the samples: a Redis that hangs on a write must not
	// hold up what is read.
	readyEvery   = 2 * time.Second
	readyTimeout = 2 * time.Second
	// maxError and maxTrouble are how many characters of an error are shown.
	maxError   = 200
	maxTrouble = 480
)

// keepAsking asks Ready until ctx ends, once per sample and not more often than
// every 2 s.
func (o *OnCall) keepAsking(ctx context.Context) {
	ticker := time.NewTicker(max(o.every, readyEvery))
	defer ticker.Stop()
	for {
		o.ask(ctx)
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
	}
}

// ask asks Ready once, logs the change from ready to not and back, and shows any
// change at once.
func (o *OnCall) ask(ctx context.Context) {
	limited, cancel := context.WithTimeout(ctx, readyTimeout)
	defer cancel()
	err := o.ready(limited)
	if ctx.Err() != nil {
		return // we are stopping; this says nothing about Redis
	}
	trouble := troubleText(err)

	o.mu.Lock()
	before := o.trouble
	o.trouble, o.isReady = trouble, err == nil
	if before != trouble {
		o.announce()
	}
	o.mu.Unlock()

	switch {
	case err != nil && before == "":
		o.log.WarnContext(ctx, "not ready: events are refused, or may be lost", "error", err)
	case err == nil && before != "":
		o.log.InfoContext(ctx, "ready again")
	}
}

// troubleText puts an error of Ready into one line for a person; empty for nil.
func troubleText(err error) string {
	if err == nil {
		return ""
	}
	lead, text := "This server is not ready: ", err.Error()
	switch {
	case errors.Is(err, schedule.ErrFull), errors.Is(err, schedule.ErrRefused):
		lead = "Redis refuses writes: "
	case errors.Is(err, schedule.ErrUnavailable):
		lead = "Redis does not answer a write: "
	case errors.Is(err, schedule.ErrUnsafe):
		// Its own words say it, once for however many settings.
		lead, text = "Redis is not set up to keep what it accepts: ", strings.ReplaceAll(text, schedule.ErrUnsafe.Error()+": ", "")
	}
	text, _ = clean(strings.ReplaceAll(text, "\n", "; "), maxTrouble)
	return lead + text
}

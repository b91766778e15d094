package console

import (
	"context"
	"errors"
	"net/http"
	"net/url"
	"strings"

	"github.com/fanout/fanout/client"
	"github.com/fanout/fanout/internal/access"
)

// deed is what a button does.
type deed struct {
	// operation of the API that it is; who may not call it is not offered the button.
	operation string
	button    string
	// ask labels the text that goes with it, "" for none. It is required unless optional.
	ask      string
	optional bool
	// hint stands below it: what will happen.
	hint string
	// done is what is said afterwards.
	done string
	// do does it, and says where to go from there: "" is back.
	do func(ctx context.Context, c *client.Client, id, text string) (to string, err error)
}

// back is for what leads nowhere else.
func back[T any](_ T, err error) (string, error) { return "", err }

// because gives a reason for the audit, if there is one.
func because(ctx context.Context, text string) context.Context {
	if text == "" {
		return ctx
	}
	return client.WithReason(ctx, text)
}

// deeds by kind of page and action.
var deeds = map[string]deed{
	"redrives/approve": {
		operation: "approveRedrive", button: "Approve", ask: "What did you check?", done: "Approved: the others are released now, at a rate that grows.",
		hint: "The others follow the canary, slowly at first. Say what you looked at, such as: shown once in the subscriber’s log.",
		do: func(ctx context.Context, c *client.Client, id, text string) (string, error) {
			return back(c.ApproveRedrive(ctx, id, text))
		},
	},
	"redrives/pause": {
		operation: "pauseRedrive", button: "Pause", ask: "Why?", done: "Paused: nothing more is released. What is out goes on.",
		do: func(ctx context.Context, c *client.Client, id, text string) (string, error) {
			return back(c.PauseRedrive(ctx, id, text))
		},
	},
	"redrives/resume": {
		operation: "resumeRedrive", button: "Resume", ask: "What has changed?", done: "Resumed: it goes on where it was paused.",
		do: func(ctx context.Context, c *client.Client, id, text string) (string, error) {
			return back(c.ResumeRedrive(ctx, id, text))
		},
	},
	"redrives/abort": {
		operation: "abortRedrive", button: "Abort", ask: "Why?", done: "Aborted: what was not released is a dead letter as before.",
		hint: "This cannot be undone. What was not released stays a dead letter, and can be redriven anew.",
		do: func(ctx context.Context, c *client.Client, id, text string) (string, error) {
			return back(c.AbortRedrive(ctx, id, text))
		},
	},
	"subscribers/pause": {
		operation: "pauseSubscriber", button: "Pause", ask: "Why?", done: "Paused: nothing is sent to it until somebody resumes it.",
		hint: "Its deliveries wait; nothing is lost.",
		do: func(ctx context.Context, c *client.Client, id, text string) (string, error) {
			return back(c.PauseSubscriber(because(ctx, text), id, client.If{}))
		},
	},
	"subscribers/resume": {
		operation: "resumeSubscriber", button: "Resume", ask: "Why?", optional: true, done: "Resumed: it is sent to again.",
		hint: "It ends a pause and what a 410 did, and lets a breaker’s next probe go at once.",
		do: func(ctx context.Context, c *client.Client, id, text string) (string, error) {
			return back(c.ResumeSubscriber(because(ctx, text), id, client.If{}))
		},
	},
	"deliveries/retry": {
		operation: "retryDelivery", button: "Retry now", ask: "Why?", optional: true, done: "It is due now.",
		hint: "It falls due at once, ahead of its backoff, and keeps its attempts.",
		do: func(ctx context.Context, c *client.Client, id, text string) (string, error) {
			return back(c.RetryDelivery(because(ctx, text), id))
		},
	},
	"deliveries/cancel": {
		operation: "cancelDelivery", button: "Cancel", ask: "Why?", done: "Cancelled: it will not be sent any more.",
		hint: "This cannot be undone.",
		do: func(ctx context.Context, c *client.Client, id, text string) (string, error) {
			return back(c.CancelDelivery(ctx, id, text))
		},
	},
	"dead-letters/redrive": {
		operation: "createRedrive", button: "Redrive this one", ask: "Why?",
		hint: "It becomes a redrive of one: its canary, sent as soon as there is a slot.",
		do: func(ctx context.Context, c *client.Client, id, text string) (string, error) {
			made, err := c.CreateRedrive(ctx, client.RedriveOrder{IDs: []string{id}, Reason: text})
			return pathTo("redrives", made.ID), err
		},
	},
	"dead-letters/discard": {
		operation: "discardDeadLetters", button: "Discard", ask: "Why?",
		hint: "This cannot be undone: the evidence and the payload go, and the ledger keeps the count.",
		do: func(ctx context.Context, c *client.Client, id, text string) (string, error) {
			_, err := c.DiscardDeadLetters(ctx, []string{id}, text)
			return "/oncall", err
		},
	},
}

// offer is a button as a page shows it.
type offer struct {
	Path, Button, Ask, Hint string
	Optional                bool
	Token                   string
	Text                    string // that failed before
	Open                    bool   // shown at once, without asking for it
}

// offers are the deeds of a page that its visitor may do.
func (s *Site) offers(l look, actions ...string) []offer {
	var all []offer
	for _, action := range actions {
		d := deeds[l.kind+"/"+action]
		if !s.may(l.Role, d.operation) {
			continue
		}
		o := offer{
			Path: pathTo(l.kind, l.id) + "/" + action, Button: d.button, Ask: d.ask, Hint: d.hint, Optional: d.optional, Token: l.Token,
		}
		if l.attempted.action == action {
			o.Text, o.Open = l.attempted.text, true
		}
		all = append(all, o)
	}
	return all
}

// act does what was pressed, by asking the API for it in the visitor's name. The API says
// whether he may, and writes it down.
func (s *Site) act(w http.ResponseWriter, r *http.Request) {
	r.Body = http.MaxBytesReader(w, r.Body, maxForm)
	kind, id, action := r.PathValue("kind"), r.PathValue("id"), r.PathValue("action")
	d, known := deeds[kind+"/"+action]
	if !known {
		s.problem(w, r, &client.Problem{Status: http.StatusNotFound, Detail: "There is nothing of this name to be done."})
		return
	}
	text := strings.TrimSpace(r.PostFormValue("text"))
	a := attempted{action: action, text: text}
	switch {
	case !s.ownForm(r, s.Visitor(r)):
		a.err = &client.Problem{
			Status: http.StatusForbidden, Detail: "Nothing was done: the form was made before you signed in, or before the server was started. Send it again.",
		}
	case d.ask != "" && !d.optional && text == "":
		a.err = &client.Problem{Status: http.StatusUnprocessableEntity, Detail: "Nothing was done: an answer to “" + d.ask + "” is required."}
	}
	to := ""
	if a.err == nil {
		to, a.err = d.do(r.Context(), s.api, id, text)
	}
	if a.err != nil {
		if !errors.Is(a.err, client.ErrInvalid) {
			s.log.InfoContext(r.Context(), "not done", "action", kind+"/"+action, "key_id", access.From(r.Context()).KeyID, "error", a.err)
		}
		s.show(w, r, a)
		return
	}
	if to == "" {
		to = pathTo(kind, id) + "?done=" + action
	}
	w.Header().Set("Location", to)
	w.WriteHeader(http.StatusSeeOther)
}

// pathTo is the page of a thing.
func pathTo(kind, id string) string { return "/oncall/" + kind + "/" + url.PathEscape(id) }

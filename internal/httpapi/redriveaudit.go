package httpapi

import (
	"context"
	"net/http"
	"slices"

	"github.com/fanout/fanout/internal/access"
	"github.com/fanout/fanout/internal/redrive"
)

// ownActions are what a redrive does by itself, in the audit's words; a pause is a
// pause whoever makes it.
var ownActions = map[string]string{
	"redrive.pause": "pauseRedrive", "redrive.await_approval": "awaitRedriveApproval", "redrive.end": "endRedrive",
}

// byItself says whether an action is one of a redrive's own and no operation.
func byItself(action string) bool {
	return slices.Contains([]string{ownActions["redrive.await_approval"], ownActions["redrive.end"]}, action)
}

// AuditRedrives writes what redrives do by themselves into the audit, with
// redrive.Guard as the actor: it is redrive.Options.Audit.
func AuditRedrives(a Audit) func(context.Context, redrive.Action) error {
	return func(ctx context.Context, did redrive.Action) error {
		action := ownActions[did.Name]
		if action == "" {
			action = did.Name
		}
		return a.Append(ctx, access.Entry{ //nolint:wrapcheck // it says what it is
			Actor:  access.Identity{KeyID: did.By, Name: "guard of redrives", Role: access.Operator},
			Action: action, Target: did.Cohort.ID, Reason: did.Reason, After: redriveFacts(did.Cohort).json(),
		})
	}
}

// orderFacts tell what was ordered.
func orderFacts(c redrive.Cohort) facts {
	f := facts{"state": c.State, "attempt_budget": c.Budget, "canaries": c.Canaries, "within": c.Within}
	if len(c.IDs) > 0 {
		const room = 400 // of the 16 KiB of an entry; the redrive has them all
		f["named"], f["ids"] = len(c.IDs), c.IDs[:min(len(c.IDs), room)]
	} else {
		f["filter"] = redriveView(c).Filter
	}
	if c.MaxRate > 0 {
		f["max_rate"] = c.MaxRate
	}
	return f
}

// redriveFacts tell where a redrive stands.
func redriveFacts(c redrive.Cohort) facts {
	f := facts{"state": c.State}
	for name, text := range map[string]string{
		"stopped": c.Stopped, "stopped_by": c.StoppedBy, "approved_by": c.ApprovedBy, "effect": c.Effect,
	} {
		if text != "" {
			f[name] = text
		}
	}
	if c.Final != nil {
		f["tally"] = tallyView(*c.Final)
	}
	return f
}

// recordRedrive writes a change down; to pause what is paused is none.
func (s *server) recordRedrive(r *http.Request, was, is redrive.Cohort, reason string) {
	if was.State == is.State {
		return
	}
	c := change{target: is.ID, reason: reason}
	c.before, c.after = redriveFacts(was), redriveFacts(is)
	s.record(r, c)
}

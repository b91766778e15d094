package oncall

import "fmt"

// Words of a redrive's states, as package redrive has them.
var redriveWords = map[string]struct {
	word string
	mark State
	says string
}{
	"planning":          {"Planning", Starting, "Its members are being claimed."},
	"canary":            {"Canary is out", Starting, "The others wait for it, and for an approval."},
	"awaiting_approval": {"Waits for approval", Blind, "The canary was delivered: look at its effect, then approve."},
	"running":           {"Running", Within, ""},
	"paused":            {"Paused", Breaching, "Nothing more is released until somebody resumes it."},
}

// redrivesOf are the redrives under way, with the forms that the visitor may use.
func redrivesOf(all []LiveRedrive, visitor Visitor) []redriveView {
	views := make([]redriveView, 0, len(all))
	for _, r := range all {
		state, known := redriveWords[r.State]
		if !known {
			state.word, state.mark = r.State, Blind
		}
		v := redriveView{LiveRedrive: r, URL: pageOf("redrives", r.ID), Word: state.word, Mark: state.mark, Sentence: state.says}
		v.Reason, _ = clean(r.Reason, maxSaid)
		v.Stopped, _ = clean(r.Stopped, maxSaid)
		if r.State == "running" {
			v.Sentence = fmt.Sprintf("It releases %.3g a second now.", r.Rate)
		}
		if held, _ := clean(r.HeldBack, maxSaid); held != "" {
			v.Sentence = "It releases nothing for now: " + held + "."
		}
		v.Members = number(r.Members)
		out := max(0, r.Released-r.Delivered-r.Dead)
		v.Parts = partsOf(r.Members,
			part{Name: "delivered", Width: float64(r.Delivered)}, part{Name: "dead again", Width: float64(r.Dead)},
			part{Name: "out", Width: float64(out)}, part{Name: "waiting", Width: float64(r.Members - r.Released)})
		for _, id := range r.Canaries {
			v.Canaries = append(v.Canaries, canaryView{id, pageOf("deliveries", id)})
		}
		if visitor.Acts {
			v.Deeds = deedsOf(r, visitor.Token)
		}
		views = append(views, v)
	}
	return views
}

// deedsOf are what can be done with a redrive in its state. Each is a form that goes to
// the redrive's own page, which does it.
func deedsOf(r LiveRedrive, token string) []deedView {
	deed := func(action, button, ask string) deedView { return deedView{action, button, ask, token, r.ID} }
	pause, abort := deed("pause", "Pause", "Why?"), deed("abort", "Abort", "Why?")
	switch r.State {
	case "awaiting_approval":
		return []deedView{deed("approve", "Approve", "What did you check?"), pause, abort}
	case "paused":
		return []deedView{deed("resume", "Resume", "What has changed?"), abort}
	case "planning", "canary", "running":
		return []deedView{pause, abort}
	}
	return nil
}

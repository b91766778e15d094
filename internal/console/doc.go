// Package console answers one question: what does a person see and do?
//
// Beside the on-call page there are pages of one thing each: a subscriber, a delivery
// with its attempts as a picture, an event, a dead letter, a redrive. Each is drawn on
// the server from what the API says, and changes something by asking the API for it, in
// the name of the person who looks: so roles, bounds and the audit are the API's own, and
// exist once. Who shows a key at the login gets a session for it.
//
//	console.go     the routes, and how a page is drawn
//	inside.go      the API, asked without a socket
//	visitor.go     who looks, and the token that a form of his must carry
//	login.go       a key in, a session out; attempts.go bounds how often
//	act.go         what buttons do
//	subscriber.go, delivery.go, event.go, deadletter.go, redrive.go   the pages
//	timeline.go    a delivery's attempts as a picture
//	runbook.go     the runbook of this version
//
// All that a stranger's server said is cleaned and cut before the template escapes it.
package console

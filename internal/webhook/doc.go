// Package webhook answers one question: how do bytes leave?
//
// It signs by the Standard Webhooks specification (Sign, Verify), decides which
// addresses may be called at all (Guard), and makes one bounded attempt (Sender):
// exactly one request on the wire, under one deadline, with a bounded answer and
// a named outcome. When to try again is not its business: it never does.
package webhook

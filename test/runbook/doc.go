// Package runbook answers: does the runbook work?
//
// It takes the commands out of docs/runbook.md and plays them, one by one and as they
// stand there, against real processes: an API server, dispatchers of two versions, a
// redis-server, a receiver. What a person does in between, the test does: fill in the
// capital words, look at the receiver, see whether two versions are alike. The page and
// the play are held to each other without the build tag runbook; `make runbook` plays it.
package runbook

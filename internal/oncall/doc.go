// Package oncall answers one question: what does on-call see?
//
// First of all the age of the oldest delivery that was eligible to run, by class
// and lane, and why it waits. A queue that grows says nothing; the age of what
// could have been sent and was not says whether workers keep up. Deliveries that
// wait for their own subscriber's cap (limited) or hold (held) are kept apart:
// they are not the workers' doing and break no SLO. What lies in the expired lease
// of a worker that is gone could have been sent: it is eligible.
//
//	age.go      due times into ages, a sample into a Snapshot
//	verdict.go  a Snapshot into one sentence
//	diagnose.go, answers.go   Snapshot and Past into what is the matter, with the four
//	            answers that lead there and the section of the runbook to follow
//	fleet.go    what dispatchers say of themselves, put together
//	past.go, ring.go          what was: kept in Redis, the same for every API process
//	holds.go    who is not sent to, since when, and what ends it
//	sampler.go, beside.go     one look at Redis a second, and what survives when it fails
//	ready.go    whether Redis takes what is written to it, and keeps it
//	metrics.go, json.go, page.go, events.go   the same Snapshot, four ways
//	board.go, steer.go, chart.go              what the page shows beside verdict and ages
//	words.go    how it writes, for the other pages of this server
package oncall

// Package redrive answers: how are dead letters sent again without a second outage?
//
// An operator makes a cohort of them (cohort.go): which ones, why, with how many
// attempts. Its members are claimed and frozen (plan.go). Then one of them is sent, the
// canary, and an operator looks at what it did at the receiver. Only after he has
// approved are the others released, slowly at first (runner.go, pace.go), for as long as nothing
// suffers from it (guard.go). Whatever stops it waits for an operator: it is a careful
// operation, never a loop.
//
//	planning --> canary --> awaiting_approval --> running <--> paused --> done
//	    |           |               |                |           |
//	    +-----------+---------------+----------------+-----------+--> aborted
//
// One process at a time moves cohorts; each change of one is made against
// the version that was read (store.go), so that a process that was frozen and wakes
// changes nothing.
package redrive

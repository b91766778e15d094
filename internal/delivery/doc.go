// Package delivery answers one question: what happens next?
//
// It holds the vocabulary of the service (Event, Delivery, Policy, Outcome) and
// the three pure functions that decide the fate of a delivery:
//
//	Classify  what did the endpoint's answer mean, and whom does it speak of?
//	Backoff   how long until the next attempt?
//	Decide    delivered, another attempt at T, or dead?
//
// Nothing here does I/O, reads a clock or draws from a shared generator: the
// caller passes the time in, and the same arguments give the same answer on
// every machine. That is what lets a test, an operator's "explain" and a
// dispatcher agree on every delay to the millisecond.
package delivery

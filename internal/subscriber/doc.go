// Package subscriber answers one question: to whom?
//
//	Subscriber  one registered endpoint: URL, filter, class, policy, secrets
//	Filter      which events it wants; Matches is the definition
//	Store       writes subscribers, each under a version, and ends them
//	Directory   every subscriber in memory: whom does an event go to (Match),
//	            and what did the lease mean by this version (At)
//
// Redis is the truth, behind the Backend interface. A Directory follows it by a
// stream of deltas and never reloads what it has. What went out to a Directory's
// callers is immutable: a change makes a new Subscriber.
package subscriber

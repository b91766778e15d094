// Package ingest answers one question: is this event ours now, and who gets it?
//
// ACCEPT AND EXPAND. Submit takes a producer's post through five steps:
//
//	validate  every field, all problems at once
//	match     which subscribers want it, as of now
//	accept    one write: payload, body hash and the frozen plan of who gets it
//	enqueue   one delivery per planned subscriber, partition by partition
//	strike    the finished partitions off the plan; an empty plan closes the event
//
// The producer waits for all but the last of them: strikes of many events go
// together, a moment later.
//
// Once accept has succeeded the event is safe and the producer is told so. What
// comes after may fail or be cut off anywhere: every step may run twice without
// a second effect, and Run, in any process, finishes the plans that stay open.
package ingest

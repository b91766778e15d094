// Package simulate answers: what would a policy cost and gain, before it is rolled out?
//
// It plays a scenario (a rate of events, groups of endpoints and how they answer, slots) under
// one or several policies by discrete events: nothing waits, and a day takes seconds.
//
//	scenario    what is played, from YAML, flags or built in
//	world       the clock and its events: arrivals, leases, answers
//	scheduler   who may be sent to, and whose turn it is: caps, breaker, rate, lanes
//	dispatcher  slots and their pools
//	measure     ages, requests, slots, dead letters
//	report      a table, JSON and charts
//
// # What is real and what is a model
//
// What an answer means and what becomes of its delivery is decided by the service's own code:
// delivery.Classify, Decide and, through it, Backoff. The holds and the order of service are
// Lua in Redis; scheduler.go, standing.go, endpoint.go and lease.go are the same rules in Go,
// function by function under the same names, for on a stand-in of Redis a lease and its
// settlement take 2,000 times as long as here (see BenchmarkEngine). TestSameAsTheEngine plays
// random operations on both, and wants the same leases in the same order and the same standing
// of every subscriber after each. dispatcher.go is package dispatch without its calls.
//
// Redis, the network and the machine have no limit here: what bounds a run is slots, caps,
// rates and holds. docs/simulate.md says how near that comes to a load test.
package simulate

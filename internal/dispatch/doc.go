// Package dispatch answers one request: do it.
//
//	loop      asks the scheduler for leases, for free slots only, when woken
//	attempt   one lease: config, body, one signed request, what came of it
//	settler   brings verdicts home in batches, and hands back what never left
//	reaper    settles for the workers that died, and ends what grew too old
//
// One delivery's road here: loop.run -> Dispatcher.attempt -> Sender.Send ->
// delivery.Decide -> settler.flush. The reaper joins it at delivery.Decide, so
// the rule that stops a delivery exists once.
//
// # Slots
//
// A slot is held from the lease until its verdict is applied (or is given up),
// not only while the request is out. Memory stays bounded by the number of slots
// whatever happens, and pressure is honest: while Redis takes no verdicts, no
// new work is leased whose verdict would have nowhere to go.
//
// # Errors
//
// No Redis error ends a loop. Each backs off with full jitter from 50 ms to 2 s,
// is reported by Ready, and goes on. Every mutating call may be repeated after a
// lost reply: leases by their seq, verdicts and claims by their fence.
//
// # Stopping
//
// When Run's context ends, in this order:
//
//  1. no lease call is begun, and the reaper and the wake listener end: work
//     that is not here yet is better off with another worker;
//  2. a lease call under way is waited for, since Redis may have charged what it
//     brings, and what it brings is released; so is every lease whose request
//     has not left yet: a release gives the attempt back, where a lost lease
//     would spend one of the few that are forgiven;
//  3. requests on the wire get Options.Grace to finish, then are cut off and
//     settled as lease_lost: whether the receiver saw them is not known;
//  4. verdicts go home all this while, detached from the stop, and for
//     settleGrace more after Grace; what is not home by then is dropped, logged
//     and left to another worker's reaper.
package dispatch

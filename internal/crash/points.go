// Package crash answers: where may a process die?
//
// Anywhere. The points here name the steps between which a death would hurt most,
// from the accept of an event to the last settle of its deliveries. A build with
// the tag `crashpoints` dies at the one that FANOUT_CRASH_AT names, as by kill -9;
// test/crash walks through all of them. In a normal build Point is an empty
// function, which the compiler removes.
package crash

// Points are the names of all points, in the order of a delivery's road. Each
// belongs to the API process or to the dispatcher, and stands in the source once.
var Points = []string{
	// The API process: a post.
	"api.accept.before",
	"api.accept.after",
	"api.enqueue.before", // of each partition
	"api.enqueue.chunk",  // after each chunk
	"api.enqueue.after",  // of each partition
	"api.strike.before",
	"api.strike.after",
	"api.answer.before", // all is done, the 202 is not written
	// What it finishes for others.
	"api.resume.claimed",
	// A delete.
	"api.tombstone.after",
	"api.cancel.after", // each batch
	// Its housekeeping.
	"api.trim.before",
	"api.trim.after",

	// The dispatcher: an attempt.
	"dispatcher.lease.before",
	"dispatcher.lease.after", // leased, and the reply not looked at
	"dispatcher.config.read",
	"dispatcher.body.read",
	"dispatcher.send.before",
	"dispatcher.send.after", // answered, and not classified
	"dispatcher.decide.after",
	"dispatcher.settle.after", // settled, and the slot not freed
	// What it hands back, and what it finishes for others.
	"dispatcher.release.before",
	"dispatcher.release.after",
	"dispatcher.reclaim.before",
	"dispatcher.reclaim.after",
}

// Package demo answers: WHAT DOES IT LOOK LIKE?
//
// It is what `fanout dev` adds to the service: a Redis of its own (StartRedis),
// endpoints that behave well and badly, subscribers registered through the public
// API, shipment events posted as a producer would, and one line on the terminal
// for each attempt (Handler). Run plays it, and checks in the end that what the
// ledger says is what the endpoints saw.
//
// Nothing here is used by the service. All that it knows it learns over HTTP, or
// from the log lines that any operator can read.
package demo

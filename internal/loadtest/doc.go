// Package loadtest answers: does one bad endpoint ever delay another?
//
// It starts the real binaries over a real redis-server, registers subscribers
// whose endpoints behave well and badly, posts events at a steady rate through
// the API, and measures at the endpoints: how old was each delivery when it
// arrived, how many requests came, how often was an answered one sent again. A
// scenario (scenarios.go, outage.go) is a play of a few such groups of endpoints;
// all that it uses is fresh. What came of it is a Report: a table, JSON, plots, and
// the bounds that it broke.
package loadtest

// Package drill answers: does triage name what is really the matter?
//
// Four situations are staged with the shipped binaries over a real Redis: an outage of one
// subscriber, more work than the slots carry, a wave of retries, and a healthy burst, which
// must wake nobody. Triage has 30 s for each. `make oncall-drill` plays them; beside other
// work on the machine they say little.
package drill

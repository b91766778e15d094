// Package cli answers: how does a person use it from a terminal?
//
// It is the commands of operators and developers over the HTTP API: run.go has Run,
// remote.go the flags that all share, command.go the list of commands and
// examples.go what their --help shows. Lists and changes are thin over package
// client; what is more than that has a file of its own: listen.go (a receiver for
// people who develop one), tail.go, explain.go (what happened to a delivery, in
// sentences) and trigger.go.
//
// The rules of all commands: answers go to stdout, and all else to stderr; exit
// codes are 0 done, 1 failed, 2 not understood, 3 the service is away or unwell; no
// key, secret or header's value is taken from the command line, and none is printed
// but by the one answer that shows it; what comes from the network is printed
// without control characters.
package cli

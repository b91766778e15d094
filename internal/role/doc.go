// Package role answers: what does a process run?
//
// A process is an API server, a dispatcher, or, in `fanout dev`, both. Each role
// is put together here, once, from the packages that do the work, and handed to
// boot.Run as stages. Nothing is decided here.
package role

// Package httpapi answers one question: who asks for what, and what are they told?
//
// It is the HTTP surface of api/openapi.yaml, whose types and routes are generated
// into api.gen.go. A handler here reads a request, calls one of the interfaces in
// deps.go and writes JSON; it decides nothing about events or deliveries.
//
//	httpapi.go     New: the router and the order of its middlewares
//	local.go       which hosts and which sites' pages may ask at all
//	query.go       the query in, strictly
//	decode.go      a body in, strictly: every byte is accounted for
//	problem.go     every error out, in one form and at one place
//	middleware.go  request id, one log line, recover, limits of size and time
//	events.go, deliveries.go, subscribers.go, operations.go   the handlers
//
// A handler returns an error instead of writing one. No URL's query and no secret
// reaches a log, a trace or an error.
package httpapi

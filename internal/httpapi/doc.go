// Package httpapi answers one question: who asks for what, and what are they told?
//
// It is the HTTP surface of api/openapi.yaml, whose types and routes are generated
// into api.gen.go. A handler here reads a request, calls one of the interfaces in
// deps.go and writes JSON; it decides nothing about events or deliveries.
//
//	httpapi.go     New: the router and the order of its middlewares
//	who.go, roles.go, accounts.go   who asks, what for, and what of it is his to see
//	person.go      a browser's session, and the pages that a person looks at
//	local.go       which hosts and which sites' pages may ask at all
//	catalogue.go, query.go   the contract's operations, and the query in, strictly
//	decode.go, inspect.go    a body in, strictly: every byte is accounted for
//	problem.go     every error out, in one form and at one place
//	audit.go       who changed what
//	middleware.go  request id, one log line, recover, limits of size and time
//	events.go, batch.go, deliveries.go, repair.go, subscribers.go, trial.go,
//	preview.go, keys.go, operations.go   the handlers
//	spec.go, sample.go, reference.go     the contract as a page
//
// A handler returns an error instead of writing one. No URL's query and no secret
// reaches a log, a trace or an error.
package httpapi

// Package examples holds what a producer may post, for the demo and for tests.
package examples

import _ "embed"

// Shipments is shipments.ndjson: one event a line, as posted to /v1/events.
//
//go:embed shipments.ndjson
var Shipments []byte

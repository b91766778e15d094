// Package api answers one question: what is promised over HTTP?
//
// openapi.yaml is the promise and its single source: the server's types and
// routes in internal/httpapi are generated from it, the server hands it out at
// /openapi.yaml, and every answer that a test sees is validated against it.
package api

import _ "embed" // for the contract

//go:generate go tool oapi-codegen -config oapi-codegen.yaml openapi.yaml

// OpenAPI is the contract, OpenAPI 3.1 in YAML. Not to be written to.
//
//go:embed openapi.yaml
var OpenAPI []byte

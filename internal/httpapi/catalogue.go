package httpapi

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"

	"github.com/go-chi/chi/v5"
)

// operation is what requests are held against of an operation of the contract.
type operation struct {
	id string // its operationId
	// takes are its query parameters with what they must be.
	takes map[string]string
}

// catalogue is every operation by method and path ("GET /v1/subscribers"), from the
// contract itself: a list kept by hand would drift.
var catalogue = sync.OnceValue(func() map[string]operation {
	spec := readContract()
	out := map[string]operation{}
	for path, item := range spec.Paths.all() {
		for method, op := range item.Operations {
			o := operation{id: op.OperationID, takes: map[string]string{}}
			for _, p := range slices.Concat(item.Parameters, op.Parameters) {
				if p = spec.parameter(p); p.In == "query" {
					o.takes[p.Name] = p.must()
				}
			}
			out[strings.ToUpper(method)+" "+path] = o
		}
	}
	return out
})

// operationOf is the operation that a routed request asks for.
func operationOf(r *http.Request) operation {
	method := r.Method
	if method == http.MethodHead {
		method = http.MethodGet // GetHead sees to it
	}
	return catalogue()[method+" "+chi.RouteContext(r.Context()).RoutePattern()]
}

func (p specParameter) must() string {
	if p.Schema.kind() == "integer" {
		return fmt.Sprintf("must be a whole number from %s to %s", p.Schema.Minimum.Value, p.Schema.Maximum.Value)
	}
	return "must be text"
}

// must says what a query parameter takes, whichever operation's it is.
func must(name string) string {
	for _, op := range catalogue() {
		if m := op.takes[name]; m != "" {
			return m
		}
	}
	return "has the wrong form; /openapi.yaml says what it takes"
}

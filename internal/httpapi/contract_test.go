package httpapi

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/go-chi/chi/v5"
	"github.com/pb33f/libopenapi"
	validator "github.com/pb33f/libopenapi-validator"
	"github.com/pb33f/libopenapi-validator/config"
	verrors "github.com/pb33f/libopenapi-validator/errors"
	openapi "github.com/pb33f/libopenapi/datamodel/high/v3"

	"github.com/fanout/fanout/api"
)

// contract is the document, and validators of requests and of answers.
type contract struct {
	model             *openapi.Document
	requests, answers validator.Validator
}

// theContract is loaded once: compiling its schemas takes longer than any test.
var theContract = sync.OnceValues(func() (contract, error) {
	doc, err := libopenapi.NewDocument(api.OpenAPI)
	if err != nil {
		return contract{}, err
	}
	model, err := doc.BuildV3Model()
	if err != nil {
		return contract{}, err
	}
	requests, errs := validator.NewValidator(doc, config.WithFormatAssertions(), config.WithoutSecurityValidation())
	// Strict: in an answer a field or a header that the contract does not name is a
	// failure too. The paths are maps, whose names are the client's.
	answers, more := validator.NewValidator(doc, config.WithFormatAssertions(), config.WithStrictMode(),
		config.WithStrictIgnorePaths("$.body.**.attributes.*", "$.body.attributes.*", "$.body.**.classify.*",
			"$.body.headers.*", "$.body.**.headers.*", "$.body.**.before.**", "$.body.**.after.**"),
		config.WithStrictIgnoredHeadersExtra("X-Content-Type-Options", "Content-Security-Policy", "Referrer-Policy", "Accept-Ranges"))
	if errs = append(errs, more...); len(errs) > 0 {
		return contract{}, fmt.Errorf("%v", errs)
	}
	return contract{&model.Model, requests, answers}, nil
})

// validating is a transport that fails the test on any answer that the contract
// does not allow, and on any request that the server takes and the contract does
// not.
type validating struct {
	t    testing.TB
	next http.RoundTripper
}

func (v validating) RoundTrip(r *http.Request) (*http.Response, error) {
	var sent []byte
	if r.Body != nil {
		sent, _ = io.ReadAll(r.Body)
		r.Body = io.NopCloser(bytes.NewReader(sent))
	}
	resp, err := v.next.RoundTrip(r)
	if err != nil || r.Method == http.MethodHead || isStream(resp) {
		return resp, err
	}
	got, err := io.ReadAll(resp.Body)
	_ = resp.Body.Close()
	if err != nil {
		return nil, err
	}
	again := func(b []byte) io.ReadCloser { return io.NopCloser(bytes.NewReader(b)) }
	defer func() { resp.Body = again(got) }()

	c, err := theContract()
	if err != nil {
		return nil, err
	}
	// The request as the contract sees it: where no operation stands for the path
	// or method, the answer must still be the problem that any operation may give.
	as := r.Clone(r.Context())
	as.Body = again(sent)
	resp.Body = again(got)
	status, header := resp.StatusCode, resp.Header
	defer func() { resp.StatusCode, resp.Header = status, header }()
	switch code := problemCode(got); {
	case code == "cross_origin_refused", code == "host_not_allowed", code == "unauthenticated" && !known(c, r):
		// Of any path and method, as is the 404 of a path that there is not.
		as.Method, as.URL.Path, as.URL.RawQuery = http.MethodPost, "/v1/events", ""
	case code == "method_not_allowed" || code == "not_found" && !known(c, r):
		as.Method, as.URL.Path, resp.StatusCode = http.MethodGet, "/v1/events/x", http.StatusNotFound
		if code == "method_not_allowed" && resp.Header.Get("Allow") == "" {
			v.t.Errorf("%s %s: 405 without Allow", r.Method, r.URL.Path)
		}
		resp.Header = header.Clone()
		resp.Header.Del("Allow") // the operation that it is checked as has none
	}
	if ok, errs := c.answers.ValidateHttpResponse(as, resp); !ok {
		v.t.Errorf("%s %s: answer %d breaks the contract: %s\n%.600s", r.Method, r.URL.Path, status, explain(errs), got)
	}
	// The validator reads numbers as float64, so it cannot judge all that JSON is.
	if readable := len(sent) == 0 || json.Unmarshal(sent, new(any)) == nil; status < 300 && readable && !refusedSome(got) {
		as.Body = again(sent)
		if ok, errs := c.requests.ValidateHttpRequest(as); !ok {
			v.t.Errorf("%s %s: taken, and yet the contract forbids it: %s\n%.600s", r.Method, r.URL.Path, explain(errs), sent)
		}
	}
	return resp, nil
}

// refusedSome says whether a batch was taken and some of its events were not.
func refusedSome(body []byte) bool {
	var receipt struct{ Refused int }
	_ = json.Unmarshal(body, &receipt)
	return receipt.Refused > 0
}

func isStream(resp *http.Response) bool {
	return strings.HasPrefix(resp.Header.Get("Content-Type"), "text/event-stream")
}

func problemCode(body []byte) string {
	var p struct{ Code string }
	_ = json.Unmarshal(body, &p)
	return p.Code
}

func explain(errs []*verrors.ValidationError) string {
	var b strings.Builder
	for _, e := range errs {
		fmt.Fprintf(&b, "\n  %s: %s", e.Message, e.Reason)
		for _, s := range e.SchemaValidationErrors {
			fmt.Fprintf(&b, "\n    %s at %v", s.Reason, s.InstancePath)
		}
	}
	return b.String()
}

// known says whether the contract has the path, whatever its method.
func known(c contract, r *http.Request) bool {
	ctx := chi.NewRouteContext()
	probe := chi.NewRouter()
	for path := range c.model.Paths.PathItems.FromOldest() {
		probe.Get(path, func(http.ResponseWriter, *http.Request) {})
	}
	return probe.Match(ctx, http.MethodGet, r.URL.Path)
}

// operations are "METHOD /path" of the contract.
func operations(t *testing.T) map[string]*openapi.Operation {
	t.Helper()
	c, err := theContract()
	if err != nil {
		t.Fatal(err)
	}
	ops := map[string]*openapi.Operation{}
	for path, item := range c.model.Paths.PathItems.FromOldest() {
		for method, op := range item.GetOperations().FromOldest() {
			ops[strings.ToUpper(method)+" "+path] = op
		}
	}
	return ops
}

// Every route is in the contract, and everything in the contract is a route.
func TestRoutesAreTheContract(t *testing.T) {
	t.Parallel()
	ops := operations(t)
	routes := map[string]bool{}
	err := chi.Walk(newServer(Deps{}).router, func(method, route string, _ http.Handler, _ ...func(http.Handler) http.Handler) error {
		routes[method+" "+route] = true
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	for r := range routes {
		if ops[r] == nil {
			t.Errorf("route %s is not in the contract", r)
		}
	}
	for op := range ops {
		if !routes[op] {
			t.Errorf("operation %s has no route", op)
		}
	}
	if len(ops) < 15 {
		t.Errorf("only %d operations were found: the test looks at nothing", len(ops))
	}
}

func TestContractReadsWell(t *testing.T) {
	t.Parallel()
	c, err := theContract()
	if err != nil {
		t.Fatal(err)
	}
	if ok, errs := c.requests.ValidateDocument(); !ok {
		t.Errorf("not valid OpenAPI 3.1: %s", explain(errs))
	}
	seen := map[string]string{}
	for name, op := range operations(t) {
		if other := seen[op.OperationId]; op.OperationId == "" || other != "" {
			t.Errorf("%s: operationId %q is empty, or also that of %q", name, op.OperationId, other)
		}
		seen[op.OperationId] = name
		if op.Summary == "" || op.Description == "" || len(op.Tags) == 0 {
			t.Errorf("%s: lacks a summary, a description or a tag", name)
		}
		failures := 0
		for status, resp := range op.Responses.Codes.FromOldest() {
			checkResponse(t, name, status, resp)
			if status >= "400" {
				failures++
			}
		}
		if failures == 0 {
			t.Errorf("%s: no error response", name)
		}
		for _, p := range op.Parameters {
			if p.Description == "" || p.Schema == nil {
				t.Errorf("%s: parameter %s lacks a description or a schema", name, p.Name)
			}
		}
	}
	if c.model.Webhooks.Len() == 0 {
		t.Error("the contract does not say what receivers get")
	}
}

func checkResponse(t *testing.T, op, status string, resp *openapi.Response) {
	t.Helper()
	if resp.Description == "" {
		t.Errorf("%s: response %s has no description", op, status)
	}
	if _, ok := resp.Headers.Get("X-Request-Id"); !ok {
		t.Errorf("%s: response %s does not have X-Request-Id", op, status)
	}
	if status < "400" {
		return
	}
	if _, ok := resp.Content.Get("application/problem+json"); !ok {
		t.Errorf("%s: response %s is not problem+json", op, status)
	}
	if _, ok := resp.Headers.Get("Retry-After"); !ok && (status == "429" || status == "503") {
		t.Errorf("%s: response %s has no Retry-After", op, status)
	}
}

// Every property has a description, by itself or by what it refers to, and every
// string, number and list has a bound: a client can size its columns by it.
func TestSchemasAreDescribedAndBounded(t *testing.T) {
	t.Parallel()
	c, err := theContract()
	if err != nil {
		t.Fatal(err)
	}
	unbounded := []string{"SubscriberDeleted.cancelled", "SubscriberDeleted.remaining", "SubscriberDeleted.leases"}
	for name, proxy := range c.model.Components.Schemas.FromOldest() {
		s := proxy.Schema()
		if s.Description == "" {
			t.Errorf("schema %s has no description", name)
		}
		for prop, p := range s.Properties.FromOldest() {
			full, schema := name+"."+prop, p.Schema()
			if schema.Description == "" {
				t.Errorf("%s has no description", full)
			}
			for _, inner := range schema.AllOf {
				schema = inner.Schema()
			}
			switch {
			case slices.Contains(unbounded, full):
			case slices.Contains(schema.Type, "string"):
				if schema.MaxLength == nil && len(schema.Enum) == 0 {
					t.Errorf("%s has no maxLength", full)
				}
			case slices.Contains(schema.Type, "array"):
				if schema.MaxItems == nil {
					t.Errorf("%s has no maxItems", full)
				}
			case slices.Contains(schema.Type, "integer"), slices.Contains(schema.Type, "number"):
				if schema.Minimum == nil {
					t.Errorf("%s has no minimum", full)
				}
			}
		}
	}
}

// Every code that can be answered is in the contract, with a status of its own
// there.
func TestEveryProblemCodeIsInTheContract(t *testing.T) {
	t.Parallel()
	c, err := theContract()
	if err != nil {
		t.Fatal(err)
	}
	proxy, ok := c.model.Components.Schemas.Get("ProblemCode")
	if !ok {
		t.Fatal("no schema ProblemCode")
	}
	listed := map[ProblemCode]bool{}
	for _, n := range proxy.Schema().Enum {
		listed[ProblemCode(n.Value)] = true
	}
	for code, kind := range kinds {
		if !listed[code] {
			t.Errorf("code %s is not in the contract", code)
		}
		if kind.title == "" || kind.status < 400 {
			t.Errorf("code %s has no title or status", code)
		}
	}
	for code := range listed {
		if _, ok := kinds[code]; !ok {
			t.Errorf("code %s of the contract is never answered", code)
		}
	}
}

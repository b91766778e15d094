package contract

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"

	"github.com/go-chi/chi/v5"
	"github.com/pb33f/libopenapi"
	validator "github.com/pb33f/libopenapi-validator"
	"github.com/pb33f/libopenapi-validator/config"
	verrors "github.com/pb33f/libopenapi-validator/errors"

	"github.com/fanout/fanout/api"
)

// judge holds an answer against the contract.
type judge struct {
	requests, answers validator.Validator
	paths             *chi.Mux // those of the contract, each with the methods it has
	codes             []any
	roles             map[string][]string // by "METHOD /path"; nil for public ones
	public            map[string]bool     // paths that ask for no key
}

// newJudge is made once: compiling the schemas takes longer than most tests.
var newJudge = sync.OnceValues(func() (*judge, error) {
	doc, err := libopenapi.NewDocument(api.OpenAPI)
	if err != nil {
		return nil, fmt.Errorf("read the contract: %w", err)
	}
	requests, errs := validator.NewValidator(doc, config.WithFormatAssertions(), config.WithoutSecurityValidation())
	// Strict: what the contract does not name must not be in an answer. The paths are
	// maps, whose names are the client's.
	answers, more := validator.NewValidator(doc, config.WithFormatAssertions(), config.WithStrictMode(),
		config.WithStrictIgnorePaths("$.body.**.attributes.*", "$.body.attributes.*", "$.body.**.classify.*",
			"$.body.headers.*", "$.body.**.headers.*", "$.body.**.before.**", "$.body.**.after.**"),
		config.WithStrictIgnoredHeadersExtra("X-Content-Type-Options", "Content-Security-Policy", "Referrer-Policy", "Accept-Ranges",
			"Content-Encoding"))
	if errs = append(errs, more...); len(errs) > 0 {
		return nil, fmt.Errorf("compile the contract: %v", errs)
	}
	tree, ops, err := load()
	if err != nil {
		return nil, err
	}
	j := &judge{requests: requests, answers: answers, paths: chi.NewRouter(), roles: map[string][]string{}, public: map[string]bool{}}
	j.codes = tree.resolve(object{"$ref": "#/components/schemas/ProblemCode"})["enum"].([]any)
	for _, op := range ops {
		j.paths.MethodFunc(op.method, op.path, func(http.ResponseWriter, *http.Request) {})
		j.roles[op.method+" "+op.path] = op.roles
		j.public[op.path] = op.roles == nil
	}
	return j, nil
})

// route is the operation that a request came to, "" if there is none.
func (j *judge) route(r *http.Request) string {
	method := r.Method
	if method == http.MethodHead {
		method = http.MethodGet
	}
	path := r.URL.RawPath
	if path == "" {
		path = r.URL.Path
	}
	ctx := chi.NewRouteContext()
	if !j.paths.Match(ctx, method, path) {
		return ""
	}
	return method + " " + ctx.RoutePattern()
}

type answer struct {
	status int
	header http.Header
	body   []byte
	stream bool // only its head was read
}

type problem struct {
	Type, Title, Code, Detail string
	Status                    int
	RequestID                 string `json:"request_id"`
	Errors                    []struct{ Pointer, Parameter, Detail string }
}

func (a answer) problem() problem {
	var p problem
	_ = json.Unmarshal(a.body, &p)
	return p
}

// faults are what is wrong with an answer.
func (j *judge) faults(r *request, sent *http.Request, a answer) (all []string) {
	wrong := func(format string, args ...any) { all = append(all, fmt.Sprintf(format, args...)) }
	if a.status >= http.StatusInternalServerError {
		wrong("a %d", a.status)
	}
	if a.status >= http.StatusBadRequest && sent.Method != http.MethodHead {
		j.problem(a, wrong)
	}
	j.access(r, sent, a, wrong)
	if r.op.id == "postEventBatch" {
		j.receipt(a, wrong)
	}
	if r.whole && slices.Contains([]string{
		"invalid_json", "invalid_utf8", "invalid_field", "unsupported_media_type", "body_too_large", "method_not_allowed",
	}, a.problem().Code) {
		wrong("nothing was broken, and yet it is refused by %s", a.problem().Code)
	}
	if sent.Method != http.MethodHead && !a.stream {
		j.schema(r, sent, a, wrong)
	}
	return all
}

// problem: every error is a problem that says what to do.
func (j *judge) problem(a answer, wrong func(string, ...any)) {
	p := a.problem()
	if a.header.Get("Content-Type") != "application/problem+json" || !slices.Contains(j.codes, any(p.Code)) {
		wrong("an error that is no problem of the contract, by its type %q and its code %q", a.header.Get("Content-Type"), p.Code)
	}
	if p.Status != a.status || p.RequestID != a.header.Get("X-Request-ID") || len(p.Detail) < 10 || p.Title == "" {
		wrong("the problem does not say enough: %+v", p)
	}
	for _, e := range p.Errors {
		if e.Detail == "" {
			wrong("a field problem says nothing: %+v", e)
		}
	}
}

// access: who may is let in, and nobody else.
func (j *judge) access(r *request, sent *http.Request, a answer, wrong func(string, ...any)) {
	code := a.problem().Code
	may, known := j.roles[j.route(sent)]
	public := known && may == nil || j.public[sent.URL.Path]
	switch {
	case code == "cross_origin_refused", a.status == http.StatusBadRequest && a.header.Get("X-Request-ID") == "":
	case r.caller.role == "" && !public && a.status != http.StatusUnauthorized:
		wrong("without a good key it is a %d", a.status)
	case r.caller.role != "" && a.status == http.StatusUnauthorized:
		wrong("a good key is not taken")
	case known && !public && r.caller.role != "" && !slices.Contains(may, r.caller.role) && a.status != http.StatusForbidden:
		wrong("a %s gets a %d, and may not", r.caller.role, a.status)
	}
}

// receipt: within a batch too nothing is our fault.
func (j *judge) receipt(a answer, wrong func(string, ...any)) {
	var batch struct {
		Results []struct {
			Index, Status int
			Problem       *problem
		}
	}
	if a.status != http.StatusOK || json.Unmarshal(a.body, &batch) != nil {
		return
	}
	for i, res := range batch.Results {
		if res.Index != i || res.Status >= 500 || (res.Problem != nil) != (res.Status >= 400) ||
			res.Problem != nil && !slices.Contains(j.codes, any(res.Problem.Code)) {
			wrong("result %d of the batch: %+v", i, res)
		}
	}
}

// schema: the answer is one that the contract has, and so is a request that was
// taken.
func (j *judge) schema(r *request, sent *http.Request, a answer, wrong func(string, ...any)) {
	as := sent.Clone(context.Background())
	as.Body = io.NopCloser(strings.NewReader(r.payload()))
	resp := &http.Response{
		StatusCode: a.status, Header: a.header.Clone(), Request: as, Body: io.NopCloser(bytes.NewReader(a.body)),
		Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1, ContentLength: int64(len(a.body)),
	}
	// Where no operation stands for the path or the method, the answer must still be
	// the problem that any operation may give.
	route := j.route(sent)
	if route == "" {
		as.Method, as.URL.Path, as.URL.RawPath, as.URL.RawQuery = http.MethodPost, "/v1/events", "", ""
		switch a.status {
		case http.StatusNotFound, http.StatusMethodNotAllowed:
			if a.status == http.StatusMethodNotAllowed && a.header.Get("Allow") == "" {
				wrong("a 405 without Allow")
			}
			as.Method, as.URL.Path, resp.StatusCode = http.MethodGet, "/v1/events/x", http.StatusNotFound
			resp.Header.Del("Allow") // the operation that it is checked as has none
		}
	} else if a.problem().Code == "cross_origin_refused" {
		as.Method, as.URL.Path, as.URL.RawPath, as.URL.RawQuery = http.MethodPost, "/v1/events", "", ""
	} else if a.status >= http.StatusBadRequest { // the validator knows no path with odd ids in it
		_, path, _ := strings.Cut(route, " ")
		as.URL.Path, as.URL.RawPath = samplePath.Replace(path), ""
	}
	if ok, errs := j.answers.ValidateHttpResponse(as, resp); !ok {
		wrong("the contract does not have this answer: %s", explain(errs))
	}
	// The validator reads numbers as float64, so it cannot judge all that JSON is.
	if readable := r.payload() == "" || json.Unmarshal([]byte(r.payload()), new(any)) == nil; a.status < 300 && readable && !refusedSome(a.body) {
		as.Body = io.NopCloser(strings.NewReader(r.payload()))
		if ok, errs := j.requests.ValidateHttpRequest(as); !ok {
			wrong("it is taken, and the contract forbids it: %s", explain(errs))
		}
	}
}

var samplePath = strings.NewReplacer("{event_id}", "x", "{subscriber_id}", "x", "{key_id}", "x", "{file}", "x",
	"{delivery_id}", "dlv_3f9a7k2m4n6p8q0r1s3t5v70")

// refusedSome says whether a batch was taken and some of its events were not.
func refusedSome(body []byte) bool {
	var receipt struct{ Refused int }
	_ = json.Unmarshal(body, &receipt)
	return receipt.Refused > 0
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

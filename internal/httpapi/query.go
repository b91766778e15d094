package httpapi

import (
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"

	"github.com/go-chi/chi/v5"
	"go.yaml.in/yaml/v3"

	"github.com/fanout/fanout/api"
)

// maxParameter bounds a parameter's name as it is told back, in characters.
const maxParameter = 64

// knownQuery refuses a query that would be dropped in part: a name that the
// operation has not, one given twice, and text that is no query at all, of which
// net/url keeps what it can in silence.
func (s *server) knownQuery(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if err := checkQuery(r); err != nil {
			s.fail(w, r, err)
			return
		}
		next.ServeHTTP(w, r)
	})
}

func checkQuery(r *http.Request) error {
	if r.URL.RawQuery == "" {
		return nil
	}
	method := r.Method
	if method == http.MethodHead {
		method = http.MethodGet
	}
	takes := queries()[method+" "+chi.RouteContext(r.Context()).RoutePattern()]
	f := fail(ProblemCodeInvalidParameter, "A parameter cannot be used; see errors.")
	seen := map[string]bool{}
	for pair := range strings.SplitSeq(r.URL.RawQuery, "&") {
		if pair == "" {
			continue
		}
		key, value, _ := strings.Cut(pair, "=")
		name, err := url.QueryUnescape(key)
		if err != nil {
			name = key
		} else {
			_, err = url.QueryUnescape(value)
		}
		var detail string
		switch {
		case strings.Contains(pair, ";"):
			detail = "holds a semicolon, which separates nothing: write & between parameters, and %3B for a semicolon"
		case err != nil:
			detail = "is not percent-encoded: write %25 for a percent sign"
		case takes[name] == "":
			detail = "is not a parameter of this request, which takes " + all(takes)
		case seen[name]:
			detail = "is given more than once; send it once"
		default:
			seen[name] = true
			continue
		}
		f.fields = append(f.fields, FieldProblem{Parameter: clip(strings.ToValidUTF8(name, "\uFFFD"), maxParameter), Detail: detail})
	}
	if len(f.fields) == 0 {
		return nil
	}
	return f
}

// all names parameters in a sentence.
func all(takes map[string]string) string {
	if len(takes) == 0 {
		return "none"
	}
	names := slices.Sorted(maps.Keys(takes))
	last := len(names) - 1
	if last == 0 {
		return names[0]
	}
	return strings.Join(names[:last], ", ") + " and " + names[last]
}

// The parts of the contract that tell an operation's parameters.
type (
	specification struct {
		Paths      map[string]specPath `yaml:"paths"`
		Components struct {
			Parameters map[string]specParameter `yaml:"parameters"`
		} `yaml:"components"`
	}
	specPath struct {
		Parameters []specParameter          `yaml:"parameters"`
		Operations map[string]specOperation `yaml:",inline"` // by method
	}
	specOperation struct {
		Parameters []specParameter `yaml:"parameters"`
	}
	specParameter struct {
		Ref    string `yaml:"$ref"`
		Name   string `yaml:"name"`
		In     string `yaml:"in"`
		Schema struct {
			Type    string `yaml:"type"`
			Minimum int    `yaml:"minimum"`
			Maximum int    `yaml:"maximum"`
		} `yaml:"schema"`
	}
)

// queries are the query parameters of each operation ("GET /v1/subscribers") with
// what they must be, from the contract itself: a list kept by hand would drift.
var queries = sync.OnceValue(func() map[string]map[string]string {
	var spec specification
	if err := yaml.Unmarshal(api.OpenAPI, &spec); err != nil {
		panic("httpapi: read the embedded contract: " + err.Error())
	}
	out := map[string]map[string]string{}
	for path, item := range spec.Paths {
		for method, op := range item.Operations {
			takes := map[string]string{}
			for _, p := range slices.Concat(item.Parameters, op.Parameters) {
				if p.Ref != "" {
					p = spec.Components.Parameters[strings.TrimPrefix(p.Ref, "#/components/parameters/")]
				}
				if p.In == "query" {
					takes[p.Name] = p.must()
				}
			}
			out[strings.ToUpper(method)+" "+path] = takes
		}
	}
	return out
})

func (p specParameter) must() string {
	if p.Schema.Type == "integer" {
		return fmt.Sprintf("must be a whole number from %d to %d", p.Schema.Minimum, p.Schema.Maximum)
	}
	return "must be text"
}

// must says what a query parameter takes, whichever operation's it is.
func must(name string) string {
	for _, takes := range queries() {
		if m := takes[name]; m != "" {
			return m
		}
	}
	return "has the wrong form; /openapi.yaml says what it takes"
}

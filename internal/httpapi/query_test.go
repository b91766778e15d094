package httpapi

import (
	"net/http"
	"strings"
	"testing"
)

// exemplary fills a path's parameters.
var exemplary = strings.NewReplacer("{event_id}", "evt_1", "{delivery_id}", "dlv_3f9a7k2m4n6p8q0r1s3t5v70",
	"{subscriber_id}", "sub_1", "{key_id}", "key_1", "{file}", "oncall.css")

// No operation drops a parameter that it does not know, nor half a query.
func TestUnknownParametersOnEveryRoute(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	for op := range operations(t) {
		method, path, _ := strings.Cut(op, " ")
		path = exemplary.Replace(path)
		for query, name := range map[string]string{
			"dry_run=1": "dry_run", "lim%69ts=1": "limits", "Limit=1": "Limit", "x": "x", "=1": "", "a[]=1": "a[]", "&&y=2": "y",
			"limit=%zz": "limit", "cursor=%": "cursor", "wait=1;x=2": "wait", "%zz=1": "%zz", "%ff=1": "\uFFFD", "?limit=1": "?limit",
		} {
			p := wantProblem(t, r.do(method, path+"?"+query, ""), ProblemCodeInvalidParameter)
			wantPointers(t, p, "?"+name)
		}
		if method == http.MethodGet {
			if a := r.do(http.MethodHead, path+"?x=1", ""); a.status != http.StatusBadRequest {
				t.Errorf("HEAD %s: %d", path, a.status)
			}
		}
	}
}

func TestParameterDetails(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	for path, want := range map[string]string{
		"/v1/subscribers?limit=0":          "must be from 1 to 200",
		"/v1/subscribers?limit=201":        "must be from 1 to 200",
		"/v1/subscribers?limit=ten":        "must be a whole number from 1 to 200",
		"/v1/subscribers?limit=":           "must be a whole number from 1 to 200",
		"/v1/dead-letters?limit=1.5":       "must be a whole number from 1 to 200",
		"/v1/subscribers?limit=1&limit=2":  "is given more than once; send it once",
		"/v1/subscribers?cursor=a&cursor=": "is given more than once; send it once",
		"/v1/subscribers?page=2":           "is not a parameter of this request, which takes account, class, cursor and limit",
		"/v1/keys?page=x":                  "is not a parameter of this request, which takes cursor and limit",
		"/healthz?x=1":                     "is not a parameter of this request, which takes none",
		"/v1/subscribers?limit=1;cursor=x": "holds a semicolon",
		"/v1/subscribers?cursor=%zz":       "is not percent-encoded",
	} {
		p := wantProblem(t, r.do("GET", path, ""), ProblemCodeInvalidParameter)
		if len(p.Errors) != 1 || !strings.Contains(p.Errors[0].Detail, want) {
			t.Errorf("%s: %+v, want %q", path, p.Errors, want)
		}
	}
	p := wantProblem(t, r.do("GET", "/v1/subscribers?a=1&b=2&"+strings.Repeat("n", 100)+"=3", ""), ProblemCodeInvalidParameter)
	wantPointers(t, p, "?a", "?b", "?"+strings.Repeat("n", 63)+"…")
}

// What the check goes by is read from the contract; an empty reading would refuse
// every query, or none.
func TestQueriesAreRead(t *testing.T) {
	t.Parallel()
	ops := operations(t)
	if len(catalogue()) != len(ops) {
		t.Errorf("%d operations are known, the contract has %d", len(catalogue()), len(ops))
	}
	for op, want := range map[string]string{"GET /v1/subscribers": "account, class, cursor and limit", "DELETE /v1/subscribers/{subscriber_id}": "wait", "GET /": "none"} {
		if got := all(catalogue()[op].takes); got != want {
			t.Errorf("%s takes %s, want %s", op, got, want)
		}
	}
}

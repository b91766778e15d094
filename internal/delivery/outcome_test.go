package delivery

import (
	"go/ast"
	"go/parser"
	"go/token"
	"math"
	"strconv"
	"testing"
)

// wantOutcome restates the table of statuses by hand, not by the code's rule.
func wantOutcome(status int) Outcome {
	named := map[int]Outcome{
		400: HTTP400, 401: HTTP401, 403: HTTP403, 404: HTTP404, 405: HTTP405, 408: HTTP408, 409: HTTP409,
		410: Gone, 413: HTTP413, 422: HTTP422, 423: HTTP423, 425: HTTP425, 429: HTTP429,
	}
	if o, ok := named[status]; ok {
		return o
	}
	switch {
	case status >= 200 && status <= 299:
		return OK
	case status >= 300 && status <= 399:
		return HTTP3xx
	case status >= 400 && status <= 499:
		return HTTP4xx
	case status >= 500 && status <= 599:
		return HTTP5xx
	}
	return Unknown
}

func TestClassifyEveryStatus(t *testing.T) {
	t.Parallel()
	for status := -1000; status <= 2000; status++ {
		got := Classify(status)
		if want := wantOutcome(status); got != want {
			t.Errorf("%d is %s, want %s", status, got, want)
		}
		if _, ok := Facts[got]; !ok {
			t.Errorf("%d is %s, which has no facts", status, got)
		}
	}
	for _, status := range []int{math.MinInt, math.MaxInt} {
		if got := Classify(status); got != Unknown {
			t.Errorf("%d is %s", status, got)
		}
	}
}

// TestFacts restates the table of outcomes.
func TestFacts(t *testing.T) {
	t.Parallel()
	want := map[Fact][]Outcome{
		{Success, NoBlame}: {OK},
		{Transient, Endpoint}: {
			Timeout, Connect, Reset, DNS, TLS, HTTP408, HTTP425, HTTP429, HTTP5xx, HTTP409, HTTP423, Unknown,
		},
		{Transient, Us}:      {LeaseLost},
		{Terminal, Endpoint}: {HTTP401, HTTP403, HTTP404, HTTP405, HTTP3xx, BlockedAddress, Gone},
		{Terminal, Payload}:  {HTTP400, HTTP413, HTTP422, HTTP4xx},
		{Terminal, Us}:       {BadRequest, PayloadMissing},
		{Terminal, NoBlame}:  {Expired, Exhausted, HeldFull},
	}
	n := 0
	for fact, outcomes := range want {
		n += len(outcomes)
		for _, o := range outcomes {
			if Facts[o] != fact || o.Kind() != fact.Kind || o.Blame() != fact.Blame {
				t.Errorf("%s is %+v, want %+v", o, Facts[o], fact)
			}
		}
	}
	if n != len(Facts) {
		t.Errorf("the table has %d outcomes, Facts %d", n, len(Facts))
	}
}

// TestUnheardOfOutcomes end by their budget, never by a guess.
func TestUnheardOfOutcomes(t *testing.T) {
	t.Parallel()
	for _, o := range []Outcome{"", "teapot"} {
		if o.Kind() != Transient || o.Blame() != Endpoint {
			t.Errorf("%q is %s, %s", o, o.Kind(), o.Blame())
		}
	}
}

// TestEveryOutcomeHasFacts reads the constants out of the source, so that a new
// one cannot be forgotten.
func TestEveryOutcomeHasFacts(t *testing.T) {
	t.Parallel()
	f, err := parser.ParseFile(token.NewFileSet(), "outcome.go", nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	ast.Inspect(f, func(node ast.Node) bool {
		spec, ok := node.(*ast.ValueSpec)
		if !ok {
			return true
		}
		if typ, ok := spec.Type.(*ast.Ident); !ok || typ.Name != "Outcome" {
			return true
		}
		for i, name := range spec.Names {
			lit, ok := spec.Values[i].(*ast.BasicLit)
			if !ok {
				t.Errorf("%s is no literal", name)
				continue
			}
			value, err := strconv.Unquote(lit.Value)
			if err != nil {
				t.Fatal(err)
			}
			n++
			if _, ok := Facts[Outcome(value)]; !ok {
				t.Errorf("%s (%q) has no facts", name, value)
			}
		}
		return true
	})
	if n != len(Facts) {
		t.Errorf("%d constants, %d facts", n, len(Facts))
	}
}

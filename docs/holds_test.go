package docs_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// Every test that holds.md names is one of the scheduler's.
func TestHoldsAreTested(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("../internal/schedule/*_test.go")
	if err != nil {
		t.Fatal(err)
	}
	var code strings.Builder
	for _, f := range files {
		code.WriteString(read(t, f))
	}
	named := find(read(t, "holds.md"), "`(Test\\w+)`")
	if len(named) < 30 {
		t.Errorf("holds.md names %d tests only", len(named))
	}
	for _, name := range named {
		if !strings.Contains(code.String(), "func "+name+"(") {
			t.Errorf("%s is no test in internal/schedule", name)
		}
	}
}

// The holds are those of the code, and each row of theirs and the breaker's names what
// proves it.
func TestHoldsAreDocumented(t *testing.T) {
	t.Parallel()
	doc := read(t, "holds.md")
	file, err := parser.ParseFile(token.NewFileSet(), "../internal/schedule/standing.go", nil, parser.SkipObjectResolution)
	if err != nil {
		t.Fatal(err)
	}
	var holds []string
	ast.Inspect(file, func(n ast.Node) bool {
		if spec, ok := n.(*ast.ValueSpec); ok && len(spec.Values) == 1 {
			if of, ok := spec.Type.(*ast.Ident); ok && of.Name == "Hold" {
				if lit, ok := spec.Values[0].(*ast.BasicLit); ok {
					name, _ := strconv.Unquote(lit.Value)
					holds = append(holds, name)
				}
			}
		}
		return true
	})
	var rows []string
	for _, row := range tableOf(t, "holds.md", "| hold | begins | ends | tests |") {
		rows = append(rows, row[0])
	}
	if !slices.Equal(rows, holds) {
		t.Errorf("the table has the holds %v, the code %v", rows, holds)
	}

	_, drawn, _ := strings.Cut(doc, "```mermaid\n")
	drawn, _, _ = strings.Cut(drawn, "```")
	var edges, moves []string
	for _, m := range regexp.MustCompile(`(?m)^ {4}(\w+) --> (\w+) :`).FindAllStringSubmatch(drawn, -1) {
		edges = append(edges, m[1]+" "+m[2])
	}
	for _, row := range tableOf(t, "holds.md", "| from | to | when | tests |") {
		moves = append(moves, row[0]+" "+row[1])
		if !strings.Contains(row[3], "Test") {
			t.Errorf("%s to %s names no test", row[0], row[1])
		}
	}
	slices.Sort(edges)
	slices.Sort(moves)
	if !slices.Equal(edges, moves) {
		t.Errorf("drawn: %q\nin the table: %q", edges, moves)
	}
}

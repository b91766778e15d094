package crash_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/fanout/fanout/internal/crash"
)

// Points lists exactly the points that stand in the source, each of them once: a
// walk over the list is a walk over the source.
func TestPointsAreThoseOfTheSource(t *testing.T) {
	t.Parallel()
	seen := map[string]string{}
	files := token.NewFileSet()
	for _, root := range []string{"../../internal", "../../cmd"} {
		err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
			if err != nil || d.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
				return err
			}
			f, err := parser.ParseFile(files, path, nil, parser.SkipObjectResolution)
			if err != nil {
				return err
			}
			ast.Inspect(f, func(n ast.Node) bool {
				call, ok := n.(*ast.CallExpr)
				if !ok || !isPoint(call.Fun) {
					return true
				}
				where := files.Position(call.Pos()).String()
				name, ok := call.Args[0].(*ast.BasicLit)
				if !ok {
					t.Errorf("%s: the name of a point must be a literal", where)
					return true
				}
				text, err := strconv.Unquote(name.Value)
				if err != nil {
					t.Errorf("%s: %v", where, err)
				}
				if before := seen[text]; before != "" {
					t.Errorf("%s: point %q stands at %s already", where, text, before)
				}
				seen[text] = where
				return true
			})
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range crash.Points {
		if seen[name] == "" {
			t.Errorf("%q is in Points and nowhere in the source", name)
		}
		delete(seen, name)
	}
	for name, where := range seen {
		t.Errorf("%s: %q is not in Points", where, name)
	}
}

func isPoint(fun ast.Expr) bool {
	sel, ok := fun.(*ast.SelectorExpr)
	if !ok || sel.Sel.Name != "Point" {
		return false
	}
	pkg, ok := sel.X.(*ast.Ident)
	return ok && pkg.Name == "crash"
}

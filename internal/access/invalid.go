package access

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// FieldProblem is one thing wrong with a new key.
type FieldProblem struct {
	// Pointer is a JSON pointer (RFC 6901) into the request, as "/expires_at".
	Pointer string `json:"pointer"`
	// Detail says what is allowed.
	Detail string `json:"detail"`
}

// Invalid is returned, as *Invalid, for a key that cannot be created. It holds
// everything that is wrong, ordered by pointer, so that one answer is enough to
// mend it all.
type Invalid struct { //nolint:errname // it is what the input is
	Fields []FieldProblem
}

func (e *Invalid) Error() string {
	var b strings.Builder
	b.WriteString("invalid key")
	for i, f := range e.Fields {
		sep := "; "
		if i == 0 {
			sep = ": "
		}
		fmt.Fprintf(&b, "%s%s %s", sep, f.Pointer, f.Detail)
	}
	return b.String()
}

// problems collects what is wrong with a new key.
type problems []FieldProblem

func (p *problems) addf(pointer, format string, a ...any) {
	*p = append(*p, FieldProblem{Pointer: pointer, Detail: fmt.Sprintf(format, a...)})
}

// err is an *Invalid, or nil if nothing is wrong.
func (p *problems) err() error {
	if len(*p) == 0 {
		return nil
	}
	slices.SortFunc(*p, func(a, b FieldProblem) int {
		return cmp.Or(cmp.Compare(a.Pointer, b.Pointer), cmp.Compare(a.Detail, b.Detail))
	})
	return &Invalid{Fields: *p}
}

package subscriber

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/fanout/fanout/internal/delivery"
)

// FieldProblem is one thing wrong with a draft.
type FieldProblem struct {
	// Pointer is a JSON pointer (RFC 6901) into the draft, as "/filter/types/0".
	Pointer string `json:"pointer"`
	// Detail says what is allowed. It never quotes a secret.
	Detail string `json:"detail"`
}

// Invalid is returned, as *Invalid, for a draft that cannot be stored. It holds
// everything that is wrong, ordered by pointer, so that one answer is enough to
// mend it all.
type Invalid struct { //nolint:errname // it is what the draft is
	Fields []FieldProblem
}

func (e *Invalid) Error() string {
	var b strings.Builder
	b.WriteString("invalid subscriber")
	for i, f := range e.Fields {
		sep := "; "
		if i == 0 {
			sep = ": "
		}
		fmt.Fprintf(&b, "%s%s %s", sep, f.Pointer, f.Detail)
	}
	return b.String()
}

// problems collects what is wrong with a draft.
type problems []FieldProblem

func (p *problems) addf(pointer, format string, a ...any) {
	*p = append(*p, FieldProblem{Pointer: pointer, Detail: fmt.Sprintf(format, a...)})
}

// addAll files joined FieldErrors under a parent: "max_attempts" becomes
// "/policy/max_attempts". An error of another kind is about the parent itself.
func (p *problems) addAll(parent string, err error) {
	if err == nil {
		return
	}
	if joined, ok := err.(interface{ Unwrap() []error }); ok {
		for _, e := range joined.Unwrap() {
			p.addAll(parent, e)
		}
		return
	}
	if field, ok := errors.AsType[delivery.FieldError](err); ok {
		p.addf(parent+"/"+field.Field, "%s", field.Detail)
		return
	}
	p.addf(parent, "%s", err)
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

// escaper makes a key fit into a JSON pointer (RFC 6901, section 3).
var escaper = strings.NewReplacer("~", "~0", "/", "~1")

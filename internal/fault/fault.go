// Package fault answers: WHAT IS WRONG WITH WHAT WAS SENT?
//
// Whoever judges an input (an event, a subscriber, a key, a redrive) gathers in a List
// all that is wrong with it, and returns it as one *Invalid: so that one answer is
// enough to mend it all.
package fault

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// Field is one thing that is wrong.
type Field struct {
	// Pointer is a JSON pointer (RFC 6901) into what was sent, as "/filter/types/0"; ""
	// is all of it.
	Pointer string
	// Detail goes on from the pointer: "must be from 1 to 10". It says what to send
	// instead, and never quotes a secret.
	Detail string
}

// Invalid is returned, as *Invalid, for an input that can never be taken as it is. It
// holds everything that is wrong with it.
type Invalid struct { //nolint:errname // it is what the input is
	// What was judged, in a word or two: "event", "subscriber".
	What string
	// Fields are at least one.
	Fields []Field
}

func (e *Invalid) Error() string {
	all := make([]string, len(e.Fields))
	for i, f := range e.Fields {
		all[i] = strings.TrimPrefix(f.Pointer+" "+f.Detail, " ")
	}
	return "invalid " + e.What + ": " + strings.Join(all, "; ")
}

// List gathers what is wrong with one input. The zero List is empty.
type List []Field //nolint:recvcheck // Addf alone changes it

// Addf adds one thing, the detail as by fmt.Sprintf.
func (l *List) Addf(pointer, format string, a ...any) {
	*l = append(*l, Field{Pointer: pointer, Detail: fmt.Sprintf(format, a...)})
}

// Err is an *Invalid of what was judged, in the order in which things were added; nil
// if nothing is wrong.
func (l List) Err(what string) error {
	if len(l) == 0 {
		return nil
	}
	return &Invalid{What: what, Fields: l}
}

// Sorted is the list by pointer, for an input that is judged in no order of its own.
func (l List) Sorted() List {
	slices.SortStableFunc(l, func(a, b Field) int {
		return cmp.Or(cmp.Compare(a.Pointer, b.Pointer), cmp.Compare(a.Detail, b.Detail))
	})
	return l
}

// escaper is RFC 6901's, section 3. To make one costs 6 KB: one serves all.
var escaper = strings.NewReplacer("~", "~0", "/", "~1")

// Escape makes a name fit to stand in a pointer.
func Escape(name string) string { return escaper.Replace(name) }

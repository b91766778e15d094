package httpapi

import (
	"errors"
	"reflect"
	"slices"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/fanout/fanout/internal/fault"
)

// fit decodes an object into v, and says of every field that does not fit why. The
// decoder stops at the first; so after one the members are decoded each by itself, and
// those of a member that is an object in turn.
func fit(text []byte, v any) ([]FieldProblem, error) {
	f := fitter{v: v}
	if f.decode(text) == nil {
		return nil, nil
	}
	reflect.ValueOf(v).Elem().SetZero()
	err := f.member(nil, text)
	return f.bad, err
}

type fitter struct {
	v   any
	bad []FieldProblem
}

// decode lays an object over what is in v. Repeated names were refused by inspect, but
// for those that are allowed.
func (f *fitter) decode(text []byte) error {
	return json.Unmarshal(text, f.v, json.RejectUnknownMembers(true), //nolint:wrapcheck // member looks at it
		jsontext.AllowDuplicateNames(true), jsontext.AllowInvalidUTF8(true))
}

// member decodes what stands at a path of quoted names.
func (f *fitter) member(path []string, value jsontext.Value) error {
	var doc strings.Builder
	for _, name := range path {
		doc.WriteString("{" + name + ":")
	}
	doc.Write(value)
	doc.WriteString(strings.Repeat("}", len(path)))
	err := f.decode([]byte(doc.String()))
	if err == nil || len(f.bad) >= maxErrors {
		return nil
	}
	semantic, is := errors.AsType[*json.SemanticError](err)
	if !is {
		return malformed(err)
	}
	pointer := string(semantic.JSONPointer)
	if value.Kind() != '{' || strings.Count(pointer, "/") <= len(path) { // it is this one, or lies in a list
		f.bad = append(f.bad, FieldProblem{Pointer: &pointer, Detail: unusable(semantic)})
		return nil
	}
	return eachMember(value, func(name string, value jsontext.Value) error {
		return f.member(append(slices.Clip(path), name), value)
	})
}

// eachMember goes through an object. The names are as they stand, in quotes.
func eachMember(object jsontext.Value, do func(name string, value jsontext.Value) error) error {
	dec := jsontext.NewDecoder(strings.NewReader(string(object)), jsontext.AllowDuplicateNames(true), jsontext.AllowInvalidUTF8(true))
	if _, err := dec.ReadToken(); err != nil {
		return malformed(err)
	}
	for dec.PeekKind() != '}' {
		raw, err := dec.ReadValue()
		if err != nil {
			return malformed(err)
		}
		name := string(raw) // it is gone with the next
		value, err := dec.ReadValue()
		if err != nil {
			return malformed(err)
		}
		if err := do(name, value.Clone()); err != nil {
			return err
		}
	}
	return nil
}

// judgedTogether are pointers of which one says what the other may be: with the one
// unread nothing can be said of the other.
var judgedTogether = map[string]string{
	"/role": "/account", "/ids": "/filter", "/filter": "/ids",
	"/policy/rate_per_second": "/policy/burst", "/policy/backoff_cap": "/policy/backoff_base",
	"/policy/max_age": "/policy/attempt_timeout", "/policy/max_attempts": "/policy/breaker_failures",
}

// besides are the broken rules of an error that say something new beside what is wrong
// already: a field that could not be read is not missing, nor is an object empty of
// which a part could not be read.
func besides(bad []FieldProblem, err error) []FieldProblem {
	known := map[string]bool{}
	for _, e := range bad {
		if e.Pointer == nil {
			continue
		}
		for at := *e.Pointer; at != ""; at = at[:max(0, strings.LastIndexByte(at, '/'))] {
			known[at], known[judgedTogether[at]] = true, true
		}
	}
	var more []FieldProblem
	for _, e := range brokenRules(err) {
		if e.Pointer != nil && !told(*e.Pointer, bad) && !known[*e.Pointer] {
			more = append(more, e)
		}
	}
	return more
}

// told says whether what is wrong at a pointer, or in what holds it, is in the list.
func told(pointer string, bad []FieldProblem) bool {
	return slices.ContainsFunc(bad, func(e FieldProblem) bool {
		return e.Pointer != nil && strings.HasPrefix(pointer+"/", *e.Pointer+"/")
	})
}

// brokenRules are those that an error tells of fields, and none if it is about
// something else.
func brokenRules(err error) []FieldProblem {
	if joined, is := err.(interface{ Unwrap() []error }); is {
		var all []FieldProblem
		for _, e := range joined.Unwrap() {
			all = append(all, brokenRules(e)...)
		}
		return all
	}
	if f, is := errors.AsType[*failure](err); is {
		return f.fields
	}
	if bad, is := errors.AsType[*fault.Invalid](err); is {
		return fieldsOf(bad)
	}
	return nil
}

// fieldsOf is what is wrong, in the words of the contract.
func fieldsOf(bad *fault.Invalid) []FieldProblem {
	out := make([]FieldProblem, 0, len(bad.Fields))
	for _, e := range bad.Fields {
		out = append(out, FieldProblem{Pointer: &e.Pointer, Detail: e.Detail})
	}
	return out
}

// with adds to a failure what else is wrong, so that one answer tells all.
func with(err, more error) error {
	f, is := errors.AsType[*failure](err)
	if !is {
		return err
	}
	f.fields = append(f.fields, besides(f.fields, more)...)
	return f
}

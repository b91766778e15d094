package subscriber

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/fanout/fanout/internal/delivery"
	"github.com/fanout/fanout/internal/fault"
)

// Bounds of a filter. An event carries at most 16 attributes, so a filter on
// more could never match, nor could one on a longer type, key or value than an
// event may have; the others keep one subscriber from filling the index.
const (
	maxTypes        = 64
	maxTypeLen      = 128 // characters, as of an event
	maxKeys         = 16
	maxKeyLen       = 64  // characters, as of an event
	maxValueLen     = 256 // characters, as of an event
	maxFilterValues = 256 // over all keys
)

// Filter says which events a subscriber wants: those whose type fits any of
// Types and whose attributes fit all of Attributes.
type Filter struct {
	// Types are patterns: "shipment.delivered" is that type alone, "shipment.*"
	// every type below it at any depth but not "shipment" itself, "*" every type.
	Types []string `json:"types"`
	// Attributes maps a key to the values that do: the event must have every key,
	// each with any of its values. Empty means that attributes do not matter.
	Attributes map[string][]string `json:"attributes,omitempty"`
}

// Matches is the definition of a match. The index only ever proposes; this
// decides.
func (f Filter) Matches(e delivery.Event) bool {
	for key, wanted := range f.Attributes {
		got, ok := e.Attributes[key]
		if !ok || !slices.Contains(wanted, got) {
			return false
		}
	}
	return slices.ContainsFunc(f.Types, func(pattern string) bool { return fits(pattern, e.Type) })
}

// fits says whether one pattern covers a type.
func fits(pattern, typ string) bool {
	if pattern == "*" {
		return true
	}
	if stem, ok := strings.CutSuffix(pattern, ".*"); ok {
		rest, below := strings.CutPrefix(typ, stem)
		return below && len(rest) > 1 && rest[0] == '.'
	}
	return pattern == typ
}

// Validate checks the patterns and every bound, and returns all that is wrong as
// joined delivery.FieldErrors, whose Field is a path such as "types/0" or
// "attributes/carrier/1", or nil.
func (f Filter) Validate() error {
	var errs []error
	bad := func(field, format string, a ...any) {
		errs = append(errs, delivery.FieldError{Field: field, Detail: fmt.Sprintf(format, a...)})
	}
	if n := len(f.Types); n < 1 || n > maxTypes {
		bad("types", "must hold 1 to %d patterns, holds %d", maxTypes, n)
	}
	for i, pattern := range f.Types[:min(len(f.Types), maxTypes)] {
		if why := badPattern(pattern); why != "" {
			bad(fmt.Sprintf("types/%d", i), "%s", why)
		}
	}
	f.validateAttributes(bad)
	return errors.Join(errs...)
}

func (f Filter) validateAttributes(bad func(field, format string, a ...any)) {
	if n := len(f.Attributes); n > maxKeys {
		bad("attributes", "must hold at most %d keys, as an event does, holds %d", maxKeys, n)
		return
	}
	total := 0
	for _, key := range slices.Sorted(maps.Keys(f.Attributes)) {
		values, path := f.Attributes[key], "attributes/"+fault.Escape(key)
		if key == "" || tooLong(key, maxKeyLen) {
			bad(path, "a key must be 1 to %d characters of UTF-8", maxKeyLen)
		}
		if len(values) == 0 {
			bad(path, "must hold at least one value: with none it never matches")
		}
		if total += len(values); total > maxFilterValues {
			bad("attributes", "must hold at most %d values over all keys", maxFilterValues)
			return
		}
		for i, v := range values {
			if tooLong(v, maxValueLen) {
				bad(fmt.Sprintf("%s/%d", path, i), "must be at most %d characters of UTF-8", maxValueLen)
			}
		}
	}
}

// tooLong also says so of what is not UTF-8, which has no length in characters.
func tooLong(s string, limit int) bool {
	return !utf8.ValidString(s) || utf8.RuneCountInString(s) > limit
}

// badPattern says what is wrong with a type pattern, "" if nothing is.
func badPattern(pattern string) string {
	if pattern == "*" {
		return ""
	}
	if n := utf8.RuneCountInString(pattern); n > maxTypeLen {
		return fmt.Sprintf("is %d characters long, must be at most %d", n, maxTypeLen)
	}
	if lower := strings.ToLower(pattern); lower != pattern && badPattern(lower) == "" {
		return fmt.Sprintf("%q has upper-case letters, which no event's type has: it would never match. Send %q", pattern, lower)
	}
	for part := range strings.SplitSeq(strings.TrimSuffix(pattern, ".*"), ".") {
		if part == "" || strings.ContainsFunc(part, notInType) {
			return fmt.Sprintf("%q must be a type (\"shipment.delivered\"), a prefix (\"shipment.*\") or \"*\"; "+
				"a type is dotted words of a-z 0-9 _ -", pattern)
		}
	}
	return ""
}

// notInType tells the characters that a word of an event's type cannot have.
func notInType(r rune) bool {
	switch {
	case r >= 'a' && r <= 'z', r >= '0' && r <= '9', r == '_', r == '-':
		return false
	}
	return true
}

// clone shares nothing with the original.
func (f Filter) clone() Filter {
	c := Filter{Types: slices.Clone(f.Types), Attributes: maps.Clone(f.Attributes)}
	for key, values := range c.Attributes {
		c.Attributes[key] = slices.Clone(values)
	}
	return c
}

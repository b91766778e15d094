package httpapi

import (
	"encoding/base64"
	"fmt"
	"net/http"
	"strings"
)

// Bounds of the lists.
const (
	defaultLimit = 50
	maxLimit     = 200
)

// maxCursor is what the contract allows, in bytes.
const maxCursor = 256

func limitOf(given *int) (int, error) {
	switch {
	case given == nil:
		return defaultLimit, nil
	case *given < 1 || *given > maxLimit:
		return 0, badParameter(ProblemCodeInvalidParameter, "limit", fmt.Sprintf("must be from 1 to %d", maxLimit))
	}
	return *given, nil
}

// checkFilters refuses a filter that nothing can have, or that is empty: a list of
// nothing, or of everything, would look like an answer.
func checkFilters(r *http.Request, given map[string]string) error {
	for name, value := range given {
		extra, told := "._:-", ". _ : -"
		if name == "key_id" {
			extra, told = "_", "_"
		}
		if r.URL.Query().Has(name) && !usableID(value, extra) {
			return badParameter(ProblemCodeInvalidParameter, name, "must be 1 to 64 of A-Z a-z 0-9 "+told+"; leave it out for all")
		}
	}
	return nil
}

// opaqueCursor is a cursor that the package below made, and judges.
func opaqueCursor(r *http.Request, given string) (string, error) {
	if r.URL.Query().Has("cursor") && (given == "" || len(given) > maxCursor) {
		return "", badCursor()
	}
	return given, nil
}

// nextCursor is null at the end.
func nextCursor(next string) *string {
	if next == "" {
		return nil
	}
	return &next
}

func badCursor() error {
	return badParameter(ProblemCodeInvalidCursor, "cursor", "is not a next_cursor of this list; leave it out to begin at the start")
}

// cursorPrefix names what a cursor is made of, so that another form can follow.
const cursorPrefix = "1:"

// makeCursor is the cursor of a list in order of id.
func makeCursor(lastID string) string {
	return base64.RawURLEncoding.EncodeToString([]byte(cursorPrefix + lastID))
}

// afterID is the id that a cursor of makeCursor stands for, "" if there is none.
func afterID(r *http.Request, cursor string) (string, error) {
	if !r.URL.Query().Has("cursor") {
		return "", nil
	}
	raw, err := base64.RawURLEncoding.DecodeString(cursor)
	id, ok := strings.CutPrefix(string(raw), cursorPrefix)
	if err != nil || !ok || !usableID(id, "_") {
		return "", badCursor()
	}
	return id, nil
}

// page cuts what was asked for beyond the limit, to know whether there is more: so
// that the last page never leads to an empty one.
func page[T any](items []T, limit int, id func(T) string) ([]T, *string) {
	if len(items) <= limit {
		return items, nil
	}
	next := makeCursor(id(items[limit-1]))
	return items[:limit], &next
}

// noStore is about the keys and the audit, which every server has but one in a test.
func noStore() error {
	return unavailable("This server was started without keys and without an audit.")
}

// notServed is about what this process was not given.
func notServed() error { return fail(ProblemCodeNotFound, "This server does not serve it.") }

package main

import (
	"slices"
	"strings"
	"testing"
)

func TestHelpIsACommandToo(t *testing.T) {
	t.Parallel()
	for line, want := range map[string]string{
		"help":             "--help",
		"help events post": "events post --help",
		"help serve":       "serve --help",
		"serve":            "serve",
		"trigger help":     "trigger help",
		"":                 "",
	} {
		if got := asked(strings.Fields(line)); !slices.Equal(got, strings.Fields(want)) {
			t.Errorf("%q: %v", line, got)
		}
	}
}

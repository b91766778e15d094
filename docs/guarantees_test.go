package docs_test

import (
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// A promise names the tests that prove it; each of them must exist, in the folder
// that the promise names.
func TestProofsExist(t *testing.T) {
	t.Parallel()
	page := read(t, "guarantees.md")
	proofs := regexp.MustCompile("((?:`Test\\w+`(?:,\\s+| and\\s+)?)+) in\\s+\\[[\\w./-]+\\]\\(([\\w./-]+)\\)").FindAllStringSubmatch(page, -1)
	named := 0
	for _, m := range proofs {
		files, err := filepath.Glob(filepath.Join(m[2], "*_test.go"))
		if err != nil {
			t.Fatal(err)
		}
		var code strings.Builder
		for _, f := range files {
			code.WriteString(read(t, f))
		}
		for _, name := range find(m[1], "`(Test\\w+)`") {
			named++
			if !strings.Contains(code.String(), "func "+name+"(") {
				t.Errorf("%s is no test in %s", name, m[2])
			}
		}
	}
	if all := len(regexp.MustCompile("`Test\\w+`").FindAllString(page, -1)); named != all {
		t.Errorf("%d of the %d tests on the page are named with their folder", named, all)
	}
}

func TestSeededBugsAreListed(t *testing.T) {
	t.Parallel()
	patches, err := filepath.Glob("../test/seeded/*.patch")
	if err != nil || len(patches) < 12 {
		t.Fatalf("%d seeded bugs: %v", len(patches), err)
	}
	var there []string
	for _, p := range patches {
		there = append(there, strings.TrimSuffix(filepath.Base(p), ".patch"))
	}
	slices.Sort(there)
	_, table, _ := strings.Cut(read(t, "guarantees.md"), "| patch |")
	if listed := find(table, "(?m)^\\| `([\\w-]+)` \\|"); !slices.Equal(listed, there) {
		t.Errorf("listed: %v\nthere:  %v", listed, there)
	}
}

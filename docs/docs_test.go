// Package docs_test answers: do the docs still say what the code does? What a
// reader would type, open or look up is checked here against the tree.
package docs_test

import (
	"context"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
)

const root = ".."

func read(t *testing.T, name string) string {
	t.Helper()
	b, err := os.ReadFile(filepath.FromSlash(name))
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// pages are all documents, by their path from here.
func pages(t *testing.T) []string {
	t.Helper()
	all := []string{"../README.md", "../CONTRIBUTING.md"}
	for _, pattern := range []string{"*.md", "adr/*.md"} {
		found, err := filepath.Glob(pattern)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, found...)
	}
	return all
}

// find returns the first group of every match, each once, sorted.
func find(text, expr string) []string {
	var all []string
	for _, m := range regexp.MustCompile(expr).FindAllStringSubmatch(text, -1) {
		all = append(all, m[1])
	}
	slices.Sort(all)
	return slices.Compact(all)
}

func scripts(t *testing.T) []string {
	t.Helper()
	files, err := filepath.Glob("../internal/schedule/lua/*.lua")
	if err != nil || len(files) == 0 {
		t.Fatalf("no scripts found: %v", err)
	}
	for i := range files {
		files[i] = filepath.Base(files[i])
	}
	return files
}

func TestScriptsAreDocumented(t *testing.T) {
	t.Parallel()
	there := scripts(t)
	named := find(read(t, "state-machine.md")+read(t, "redis.md"), `(\w+\.lua)\b`)
	for _, s := range there {
		if !slices.Contains(named, s) {
			t.Errorf("%s is in neither state-machine.md nor redis.md", s)
		}
	}
	for _, page := range pages(t) {
		for _, s := range find(read(t, page), `(\w+\.lua)\b`) {
			if !slices.Contains(there, s) {
				t.Errorf("%s names %s, which does not exist", page, s)
			}
		}
	}
}

// constants reads the values of the string constants of a type of package delivery.
func constants(t *testing.T, typeName string) []string {
	t.Helper()
	file, err := parser.ParseFile(token.NewFileSet(), "../internal/delivery/event.go", nil, parser.SkipObjectResolution)
	if err != nil {
		t.Fatal(err)
	}
	var values []string
	ast.Inspect(file, func(n ast.Node) bool {
		spec, ok := n.(*ast.ValueSpec)
		if !ok || len(spec.Values) != 1 {
			return true
		}
		if of, ok := spec.Type.(*ast.Ident); !ok || of.Name != typeName {
			return true
		}
		if lit, ok := spec.Values[0].(*ast.BasicLit); ok {
			value, err := strconv.Unquote(lit.Value)
			if err != nil {
				t.Fatal(err)
			}
			values = append(values, value)
		}
		return true
	})
	if len(values) == 0 {
		t.Fatalf("no constants of type delivery.%s", typeName)
	}
	return values
}

func TestStatesAndPlacesAreDrawn(t *testing.T) {
	t.Parallel()
	doc := read(t, "state-machine.md")
	blocks := regexp.MustCompile("(?s)```(mermaid)?\n(.*?)```").FindAllStringSubmatch(doc, -1)
	if len(blocks) != 4 {
		t.Fatalf("%d diagrams, want two of the states and two of the places", len(blocks))
	}
	for _, state := range constants(t, "State") {
		for _, i := range []int{0, 1} {
			if !regexp.MustCompile(`\b` + state + `\b`).MatchString(blocks[i][2]) {
				t.Errorf("diagram %d does not show the state %s", i+1, state)
			}
		}
	}
	for _, row := range transitions(t) {
		if !strings.Contains(blocks[0][2], row[2]) {
			t.Errorf("the diagram in plain text does not show %s", row[2])
		}
	}
	for _, lane := range constants(t, "Lane") {
		if !strings.Contains(doc, "`"+lane+"`") {
			t.Errorf("state-machine.md does not name the lane %s", lane)
		}
	}
	placesAreThoseOfTheScripts(t, blocks[2][2], blocks[3][2])
}

// placesAreThoseOfTheScripts holds the table of places against the two tables in
// subscriber.lua that say what a place means, and both diagrams against it.
func placesAreThoseOfTheScripts(t *testing.T, diagrams ...string) {
	t.Helper()
	script := read(t, "../internal/schedule/lua/subscriber.lua")
	meaning := func(name string) map[string]string {
		body := regexp.MustCompile(`(?m)^local ` + name + ` = \{(.*)\}$`).FindStringSubmatch(script)
		if body == nil {
			t.Fatalf("subscriber.lua: no %s to be found", name)
		}
		of := map[string]string{}
		for _, m := range regexp.MustCompile(`(\w) = '(\w+:?)'`).FindAllStringSubmatch(body[1], -1) {
			of[m[1]] = m[2]
		}
		return of
	}
	kinds, orders := meaning("KIND"), meaning("ORDER")
	places := table(t, "| letter | place | when | where |")
	if len(places) != len(kinds)+1 {
		t.Errorf("subscriber.lua has %d places, the table %d", len(kinds)+1, len(places))
	}
	for _, row := range places {
		letter, place, where := row[0], row[1], row[3]
		want := "nowhere"
		if kind := kinds[letter]; kind != "" {
			want = "age:" + kind + ":..."
		}
		if order := orders[letter]; order != "" {
			want = order + "... by "
		}
		if !strings.Contains(where, want) || !strings.Contains(where, "age:"+kinds[letter]) && letter != "-" {
			t.Errorf("%s stands %q, by subscriber.lua it is in %q and age:%s", place, where, want, kinds[letter])
		}
		for _, drawn := range diagrams {
			if !regexp.MustCompile(`\b` + place + `\b`).MatchString(drawn) {
				t.Errorf("a diagram does not show the place %s", place)
			}
		}
	}
}

// The words of the record stand in redis.md in their order.
func TestRecordIsDocumented(t *testing.T) {
	t.Parallel()
	script := read(t, "../internal/schedule/lua/record.lua")
	whole := regexp.MustCompile(`(st, [\w, ]+) = string\.match\(text, WHOLE\)`).FindStringSubmatch(script)
	if whole == nil {
		t.Fatal("record.lua: no decode to be found")
	}
	want := strings.Split(whole[1], ", ")
	var got []string
	for i, m := range regexp.MustCompile("(?m)^\\| (\\d+) \\| `(\\w+)`(?: `(\\w+)`)? \\|").FindAllStringSubmatch(read(t, "redis.md"), -1) {
		if m[1] != strconv.Itoa(i+1) {
			t.Errorf("row %d is numbered %s", i+1, m[1])
		}
		got = append(got, m[2])
		if m[3] != "" { // two letters in one word
			got = append(got, m[3])
		}
	}
	if !slices.Equal(got, want) {
		t.Errorf("redis.md has the words\n%v, record.lua\n%v", got, want)
	}
}

func TestLinksResolve(t *testing.T) {
	t.Parallel()
	for _, page := range pages(t) {
		for _, link := range find(read(t, page), `\]\(([^)#\s]+)[^)]*\)`) {
			if strings.Contains(link, "://") {
				continue
			}
			if _, err := os.Stat(filepath.Join(filepath.Dir(page), filepath.FromSlash(link))); err != nil {
				t.Errorf("%s links to %s: %v", page, link, err)
			}
		}
	}
}

// The road in README: what a step names in backquotes is in the file it links to.
func TestTheRoadIsWhereReadmeSays(t *testing.T) {
	t.Parallel()
	_, road, found := strings.Cut(read(t, "../README.md"), "## The road of one delivery\n")
	road, _, _ = strings.Cut(road, "\n## ")
	steps := regexp.MustCompile("(?m)^\\d+\\. .*?`([^`]+)`.*?\\]\\(([^)]+)\\)").FindAllStringSubmatch(road, -1)
	if !found || len(steps) < 8 {
		t.Fatalf("README.md: %d steps of the road can be read", len(steps))
	}
	for _, step := range steps {
		if !strings.Contains(read(t, root+"/"+step[2]), step[1]) {
			t.Errorf("README.md: %s is not in %s", step[1], step[2])
		}
	}
}

func TestFoldersOfTheTreeExist(t *testing.T) {
	t.Parallel()
	readme := read(t, "../README.md")
	for _, dir := range find(readme, `(?m)^((?:cmd|internal|api|deploy|docs|examples|scripts|test)/[\w/]*)\s`) {
		if info, err := os.Stat(filepath.Join(root, dir)); err != nil || !info.IsDir() {
			t.Errorf("README.md lists %s, which is no folder: %v", dir, err)
		}
	}
	packages, err := filepath.Glob("../internal/*")
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range packages {
		if name := "internal/" + filepath.Base(p) + "/"; !strings.Contains(readme, "\n"+name) {
			t.Errorf("README.md's tree lacks %s", name)
		}
	}
}

func TestMakeTargetsExist(t *testing.T) {
	t.Parallel()
	targets := find(read(t, "../Makefile"), `(?m)^([a-z-]+):`)
	for _, page := range pages(t) {
		for _, target := range find(read(t, page), "(?m)(?:`|^)make ([a-z-]+)(?:`|$)") {
			if !slices.Contains(targets, target) {
				t.Errorf("%s says make %s, which the Makefile does not have", page, target)
			}
		}
	}
}

// help is what the binaries say of themselves.
func help(t *testing.T) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 4*time.Minute)
	defer cancel()
	bin := t.TempDir()
	// Built as this test was, so that what both are made of is in the cache.
	args := []string{"build", "-o", bin + "/"}
	if info, ok := debug.ReadBuildInfo(); ok && slices.Contains(info.Settings, debug.BuildSetting{Key: "-race", Value: "true"}) {
		args = append(args, "-race")
	}
	build := exec.CommandContext(ctx, "go", append(args, "./cmd/...")...)
	build.Dir = root
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("go build: %v\n%s", err, out)
	}
	var text strings.Builder
	for _, args := range [][]string{{"fanout", "serve"}, {"fanout", "dev"}, {"fanout", "loadtest"}, {"fanout", "simulate"}, {"fanout", "listen"}, {"fanout", "trigger"}, {"fanout", "deliveries", "ls"}, {"fanout", "redrive", "start"}, {"fanout", "redrive", "approve"}, {"fanout", "redrive", "watch"}, {"fanout", "redrive", "abort"}, {"fanout", "audit"}, {"fanout", "deliveries", "ls"}, {"dispatcher"}} {
		out, err := exec.CommandContext(ctx, filepath.Join(bin, args[0]), append(args[1:], "--help")...).Output()
		if err != nil {
			t.Fatalf("%v --help: %v", args, err)
		}
		text.Write(out)
	}
	return text.String()
}

// Every flag and variable that the docs name is one that the binaries know, or, in
// CONTRIBUTING, that a test reads.
func TestFlagsAndVariablesExist(t *testing.T) {
	t.Parallel()
	const flagsAndVariables = "(?:^|[\\s`($\\[])(--[a-z][a-z-]*[a-z]|FANOUT_[A-Z_]+)(?:[=`\\s,.:;)\\]]|$)"
	known := find(help(t), flagsAndVariables)
	forTests := find(read(t, "../internal/console/screens_test.go"), `"(FANOUT_[A-Z_]+)"`)
	for _, page := range pages(t) {
		text := strings.ReplaceAll(read(t, page), "docker compose up --build", "")
		for _, name := range find(text, flagsAndVariables) {
			if !slices.Contains(known, name) && (page != "../CONTRIBUTING.md" || !slices.Contains(forTests, name)) {
				t.Errorf("%s names %s, which no binary knows", page, name)
			}
		}
	}
}

//go:build crash

// Package crash kills the API server and the dispatcher at each of the points of
// internal/crash in turn, and asks whether anything that was accepted is lost.
//
// Each point is a run of its own: a Redis, both processes, endpoints, producers.
// Events are posted until the process has died at the point. Then it is started
// again, and in the end everything must have ended well. With appendfsync always
// nothing may be lost. With everysec Redis loses its last second with the process,
// as in a power cut, and the walk says how much of what was accepted went with it;
// what is left must be whole all the same.
package crash

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"

	"github.com/fanout/fanout/internal/crash"
)

var (
	third   = flag.Bool("third", false, "walk to a third of the points only")
	figures = flag.String("figures", "", "file for the figures of the walk")

	binaries string // folder
	total    tally
)

// tally is what all runs came to.
type tally struct {
	sync.Mutex
	points, runs, violations int
	accepted, lost           map[bool]int // by appendfsync always
}

func TestMain(m *testing.M) {
	flag.Parse()
	os.Exit(walk(m))
}

func walk(m *testing.M) int {
	dir, err := os.MkdirTemp("", "fanout-crash-")
	if err != nil {
		panic(err)
	}
	defer os.RemoveAll(dir)
	binaries, total.accepted, total.lost = dir, map[bool]int{}, map[bool]int{}
	build := exec.CommandContext(context.Background(), "go", "build", "-tags", "crashpoints", "-o", dir+"/", "./cmd/...")
	build.Dir = "../.."
	if out, err := build.CombinedOutput(); err != nil {
		fmt.Fprintf(os.Stderr, "build: %v\n%s", err, out)
		return 1
	}
	code := m.Run()
	line := fmt.Sprintf("points=%d runs=%d accepted_always=%d lost_always=%d accepted_everysec=%d lost_everysec=%d violations=%d\n",
		total.points, total.runs, total.accepted[true], total.lost[true], total.accepted[false], total.lost[false], total.violations)
	if *figures == "" {
		fmt.Print(line)
	} else if err := os.WriteFile(*figures, []byte(line), 0o600); err != nil {
		panic(err)
	}
	return code
}

func TestWalk(t *testing.T) {
	for i, point := range crash.Points {
		if *third && i%3 != 0 {
			continue
		}
		total.points++
		for _, always := range []bool{true, false} {
			name := point + ",everysec"
			if always {
				name = point + ",always"
			}
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				r := &run{T: t, scenario: scenarios[point], point: point, always: always}
				counted := false
				defer func() {
					if !counted { // it gave up on the way
						total.Lock()
						total.runs++
						total.violations++
						total.Unlock()
					}
				}()
				accepted, lost, violations := r.walk()
				counted = true
				if always && lost > 0 {
					violations = append(violations, fmt.Sprintf("%d accepted were lost", lost))
				}
				t.Logf("accepted=%d lost=%d violations=%d", accepted, lost, len(violations))
				if len(violations) > 0 {
					t.Errorf("%s", strings.Join(violations, "\n"))
				}
				total.Lock()
				defer total.Unlock()
				total.runs++
				total.accepted[always] += accepted
				total.lost[always] += lost
				total.violations += len(violations)
			})
		}
	}
}

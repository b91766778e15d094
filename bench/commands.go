package main

import (
	"context"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"
)

// command is what Redis says of one of its commands: calls and us, from its start or
// per delivery. What a script calls is counted under its own name too, and its us are
// within those of evalsha.
type command struct {
	Calls float64 `json:"calls"`
	US    float64 `json:"us"`
}

// counters of a Redis.
type counters struct {
	commands map[string]command
	// reads is how often it read from a client: once per round trip, since a pipeline
	// is one, up to 16 KiB.
	reads float64
}

func (s *store) counters(ctx context.Context) (counters, error) {
	text, err := s.rdb.InfoMap(ctx, "commandstats", "stats").Result()
	if err != nil {
		return counters{}, err
	}
	c := counters{commands: map[string]command{}}
	for name, line := range text["Commandstats"] {
		var one command
		for field := range strings.SplitSeq(line, ",") {
			key, value, _ := strings.Cut(field, "=")
			switch v, _ := strconv.ParseFloat(value, 64); key {
			case "calls":
				one.Calls = v
			case "usec":
				one.US = v
			}
		}
		c.commands[strings.TrimPrefix(name, "cmdstat_")] = one
	}
	c.reads, err = strconv.ParseFloat(text["Stats"]["total_reads_processed"], 64)
	return c, err
}

// spent notes what a Redis did for each of n deliveries since an earlier look.
func (s *sample) spent(before, after counters, n int) {
	s.Trips = (after.reads - before.reads) / float64(n)
	s.Commands = map[string]command{}
	for name, now := range after.commands {
		was := before.commands[name]
		one := command{(now.Calls - was.Calls) / float64(n), (now.US - was.US) / float64(n)}
		if one.Calls > 0 {
			s.Commands[name] = one
		}
		if strings.HasPrefix(name, "eval") {
			s.ScriptUS += one.US
		}
	}
}

// writeCommands prints them, the dearest first.
func (s sample) writeCommands(w io.Writer) {
	fmt.Fprintln(w, "\nRedis command\tcalls per delivery\tus per delivery")
	dearest := func(a, b string) int { return int(1e6 * (s.Commands[b].US - s.Commands[a].US)) }
	for _, name := range slices.SortedFunc(maps.Keys(s.Commands), dearest) {
		fmt.Fprintf(w, "%s\t%.2f\t%.2f\n", name, s.Commands[name].Calls, s.Commands[name].US)
	}
}

//go:build chaos

package chaos

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"
)

// kind is a way to hurt something.
type kind string

const (
	kill   kind = "kill -9"
	freeze kind = "freeze" // SIGSTOP, then SIGCONT

	redisFull       kind = "maxmemory below used"
	redisReadOnly   kind = "read-only"
	redisNoReplicas kind = "min-replicas-to-write"
	redisSleep      kind = "DEBUG SLEEP"
	redisSpin       kind = "long script"
	redisFlush      kind = "SCRIPT FLUSH"
	redisClients    kind = "CLIENT KILL"
	redisLoading    kind = "restart that loads for long"

	linkCut     kind = "cut"
	linkSilent  kind = "silent"
	linkStalled kind = "stalled handshake"
	linkSlow    kind = "slow"
	linkDeaf    kind = "replies dropped"
	linkHalf    kind = "half-close"
)

// fault is one of them, drawn before the round begins.
type fault struct {
	At, For time.Duration
	Kind    kind
	// Target is "redis", or a number: of a child, or of the proxy in front of it.
	Target int
	Dice   int
}

const redisTarget = -1

func (f fault) String() string {
	who := "redis"
	if f.Target != redisTarget {
		who = fmt.Sprint("child ", f.Target)
	}
	return fmt.Sprintf("%6.2fs for %5.2fs: %s, %s", f.At.Seconds(), f.For.Seconds(), who, f.Kind)
}

// choice is a kind with its weight and its length in ms.
type choice struct {
	kind           kind
	weight, lo, hi int
}

var (
	toRedis = []choice{
		{kill, 4, 50, 3000},
		{freeze, 3, 200, 4500},
		{redisFull, 3, 500, 4000},
		{redisReadOnly, 2, 500, 3000},
		{redisNoReplicas, 2, 500, 3000},
		{redisSleep, 2, 300, 3500},
		{redisSpin, 2, 300, 3000},
		{redisFlush, 2, 0, 1},
		{redisClients, 3, 0, 1},
		{redisLoading, 2, 500, 2500},
	}
	toProcess = []choice{{kill, 3, 50, 2500}, {freeze, 2, 200, 5000}}
	toLink    = []choice{
		{linkCut, 2, 50, 2000},
		{linkSilent, 3, 200, 7000},
		{linkStalled, 2, 500, 5000},
		{linkSlow, 2, 500, 4000},
		{linkDeaf, 4, 100, 2500},
		{linkHalf, 2, 0, 1},
	}
)

// mostChildren bounds how many children faults are drawn for: the same seed gives
// the same faults to each of them, however many a world has.
const mostChildren = 5

// draw makes the faults of a round out of its seed: on Redis one at a time, since
// most are made by commands to it; on each process and on each link one at a time
// too, and all of these at once.
func draw(seed uint64, length time.Duration) []fault {
	all := lane(stream(seed, "redis", 0), redisTarget, toRedis, length, 2500)
	for i := range mostChildren {
		all = append(all, lane(stream(seed, "process", i), i, toProcess, length, 7000)...)
		all = append(all, lane(stream(seed, "link", i), i, toLink, length, 4500)...)
	}
	// In one round of three, a dispatcher is frozen beyond the end of its leases.
	if rng := stream(seed, "long freeze", 0); rng.IntN(3) == 0 {
		target := 2 + rng.IntN(2)
		all = slices.DeleteFunc(all, func(f fault) bool { return f.Target == target && slices.Contains([]kind{kill, freeze}, f.Kind) })
		all = append(all, fault{At: time.Duration(rng.IntN(3000)) * time.Millisecond, For: 19 * time.Second, Kind: freeze, Target: target})
	}
	slices.SortStableFunc(all, func(a, b fault) int { return int(a.At - b.At) })
	return all
}

// lane draws faults that follow one another, with pauses of gap ms on average.
func lane(rng *rand.Rand, target int, choices []choice, length time.Duration, gap float64) []fault {
	var all []fault
	for at := 0.0; ; {
		at += min(rng.ExpFloat64(), 4) * gap
		c := pickChoice(rng, choices)
		f := fault{
			At: time.Duration(at) * time.Millisecond, Kind: c.kind, Target: target, Dice: rng.IntN(1000),
			For: time.Duration(c.lo+rng.IntN(c.hi-c.lo)) * time.Millisecond,
		}
		if f.At >= length {
			return all
		}
		all = append(all, f)
		at += float64(f.For / time.Millisecond)
		at += 200
	}
}

func pickChoice(rng *rand.Rand, choices []choice) choice {
	sum := 0
	for _, c := range choices {
		sum += c.weight
	}
	n := rng.IntN(sum)
	for _, c := range choices {
		if n -= c.weight; n < 0 {
			return c
		}
	}
	panic("unreachable")
}

// step is the beginning or the end of a fault, or a look at what it does.
type step struct {
	at time.Duration
	do func()
}

// inflict plays the faults and returns when each is over and everything runs.
func (w *world) inflict(faults []fault) {
	var steps []step
	for _, f := range faults {
		if f.Target >= len(w.children) {
			continue
		}
		steps = append(steps, step{f.At, func() { w.begin(f) }})
		if f.For > time.Millisecond {
			steps = append(steps, step{f.At + f.For, func() { w.over(f) }})
		}
		if f.blinds() && f.For > 2*lookAfter {
			steps = append(steps, step{f.At + lookAfter, func() { w.lookUnready(f) }})
		}
	}
	slices.SortStableFunc(steps, func(a, b step) int { return int(a.at - b.at) })
	start := time.Now()
	for _, s := range steps {
		<-time.After(time.Until(start.Add(s.at)))
		s.do()
	}
	<-time.After(time.Until(start.Add(flags.round)))
	w.notef("the faults are over")
}

func (w *world) begin(f fault) {
	figures.faults.Add(1)
	w.notef("begin %s", strings.TrimSpace(f.String()))
	if f.Kind == kill {
		figures.kills.Add(1)
	}
	switch {
	case f.Target == redisTarget:
		w.hurtRedis(f)
	case f.Kind == kill:
		w.children[f.Target].kill9()
	case f.Kind == freeze:
		w.mu.Lock()
		w.froze = true
		w.mu.Unlock()
		w.children[f.Target].freeze()
	default:
		w.hurtLink(f)
	}
}

func (w *world) over(f fault) {
	w.notef("end of %s", strings.TrimSpace(f.String()))
	switch {
	case f.Target == redisTarget:
		w.healRedis(f)
	case f.Kind == kill:
		c := w.children[f.Target]
		if state, _ := c.look(); state == down {
			if err := c.start(); err != nil {
				w.wrong("%v", err)
			}
		}
	case f.Kind == freeze:
		w.children[f.Target].thaw()
	default:
		w.proxies[f.Target].set(pass, 0)
	}
}

func (w *world) hurtLink(f fault) {
	p := w.proxies[f.Target]
	switch f.Kind {
	case linkCut:
		p.set(cut, 0)
	case linkSilent:
		p.set(silent, 0)
	case linkStalled:
		p.set(stalled, 0)
		p.drop() // so that new connections are asked for
	case linkSlow:
		p.set(slow, time.Duration(20+f.Dice)*time.Millisecond)
	case linkDeaf:
		p.set(deaf, 0)
	case linkHalf:
		p.halve(f.Dice%2 == 0)
	default:
		panic("no such fault: " + f.Kind)
	}
}

// lookAfter is when, after the begin of a fault, nobody may be ready any more.
const lookAfter = 500 * time.Millisecond

// blinds says that no work can be accepted while the fault lasts, and that its end
// is the test's own doing.
func (f fault) blinds() bool {
	return slices.Contains([]kind{
		kill, freeze, redisFull, redisReadOnly, redisNoReplicas, linkCut, linkSilent,
	}, f.Kind) && (f.Target == redisTarget || f.Kind == linkCut || f.Kind == linkSilent)
}

// lookUnready asks those that the fault blinds whether they are ready. What else
// was done to one meanwhile makes its answer worthless.
func (w *world) lookUnready(f fault) {
	for i, c := range w.children {
		if f.Target != redisTarget && f.Target != i {
			continue
		}
		state, before := c.look()
		if state != up || c.address() == "" {
			continue
		}
		changes := w.db.changes.Load()
		w.gone.Go(func() {
			status, says := w.ready(c)
			_, after := c.look()
			undisturbed := before == after && changes == w.db.changes.Load()
			if f.Target != redisTarget {
				m, _, _ := w.proxies[i].now()
				undisturbed = before == after && m != pass
			}
			w.notef("%s says %d during %s: %s", c.name, status, f.Kind, says)
			if status == 200 && undisturbed {
				w.wrong("%s says that it is ready during %s of %s", c.name, f.Kind, f)
			}
		})
	}
}

//go:build runbook

package runbook

import (
	"fmt"
	"math"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/fanout/fanout/client"
	"github.com/fanout/fanout/internal/delivery"
)

var (
	deliveryID = regexp.MustCompile(`dlv_[0-9a-z]+`)
	redriveID  = regexp.MustCompile(`rdv_[0-9A-Z]+`)
)

// contains wants words in what a command printed.
func (w *world) contains(out string, words ...string) {
	w.Helper()
	for _, word := range words {
		if !strings.Contains(out, word) {
			w.Fatalf("no %q in\n%s", word, out)
		}
	}
}

// TestRunbook plays both sections: the second finds the service as the first left it.
func TestRunbook(t *testing.T) {
	w := newWorld(t)
	w.redriveDrill()
	w.rolloutDrill()
	fmt.Println("runbook: it was played,", len(redrive.play)+len(rollout.play), "commands")
}

// redriveDrill: an endpoint's deploy refused all for a while, and one event is a test
// order that nobody wants.
func (w *world) redriveDrill() {
	w.Helper()
	const letters = 24
	sub := w.subscriber("/refused", "refused")
	w.refuse("/refused", 422)
	test := delivery.NewID(w.post("refused", 1)[0], sub)
	w.dead(sub, 1)
	w.post("refused", letters)
	ids := w.dead(sub, letters+1)
	w.refuse("/refused", 0)
	w.fill["SUB"] = sub
	watched := make(chan string, 1)
	page := redrive.commands(w)
	line := func(i int) string { return page[i] }

	w.fill["DELIVERY"] = deliveryID.FindString(w.shell(line(0)))
	w.contains(w.shell(line(1)), "http_422", "422", "we were told to refuse")
	w.fill["DELIVERY"] = test
	w.shell(line(2))
	w.dead(sub, letters)

	w.contains(w.shell(line(3)), sub)
	w.shell(line(4))
	w.contains(w.shell(line(5)), strconv.Itoa(letters))
	w.fill["REDRIVE"] = redriveID.FindString(w.shell(line(6)))
	w.awaits(w.fill["REDRIVE"], client.RedriveAwaiting)
	canary := deliveryID.FindString(w.shell(line(7)))
	if n, again := w.times(canary); n != 1 || !again {
		w.Fatalf("the canary %s was applied %d times", canary, n)
	}
	for _, id := range ids {
		if n, _ := w.times(id); id != canary && n != 0 {
			w.Fatalf("%s was sent before anybody has approved", id)
		}
	}
	w.shell(line(8))
	go func() { watched <- w.shell(line(9)) }()
	w.until("some are out", func() bool { return w.state(w.fill["REDRIVE"]).Tally.Released > 3 })
	w.shell(line(10))
	w.contains(w.shell("fanout redrive show REDRIVE"), "paused")
	w.shell(line(11))
	select {
	case <-watched:
	case <-time.After(patience):
		w.Fatal("to watch it does not end")
	}
	w.contains(w.shell(line(12)), "done", strconv.Itoa(letters)+" delivered, 0 dead again")
	w.contains(w.shell(line(13)), "createRedrive", "approveRedrive", "pauseRedrive", "resumeRedrive", "endRedrive", "order 4711 shows delivered, one row")
	for _, id := range ids {
		n, again := w.times(id)
		if want := 1; id == test {
			if n != 0 {
				w.Errorf("what was discarded was sent")
			}
		} else if n != want || !again {
			w.Errorf("%s was applied %d times", id, n)
		}
	}
}

func (w *world) state(id string) client.Redrive {
	w.Helper()
	r, err := w.boss.GetRedrive(w.ctx, id)
	w.ok(err)
	return r
}

func (w *world) awaits(id string, state client.RedriveState) {
	w.Helper()
	w.until("the redrive is "+string(state), func() bool { return w.state(id).State == state })
}

// rolloutDrill: while a redrive runs, a new worker version is tried, compared, and taken
// back.
func (w *world) rolloutDrill() {
	w.Helper()
	const letters = 60
	sub := w.subscriber("/later", "later")
	w.refuse("/later", 422)
	w.post("later", letters)
	ids := w.dead(sub, letters)
	w.refuse("/later", 0)
	id := w.running(sub)
	w.fill["REDRIVE"] = id
	page := rollout.commands(w)
	line := func(i int) string { return page[i] }

	w.contains(w.shell(line(0)), id, "running")
	w.shell(line(1))
	released := w.quiet(id)

	pid, log := w.background(line(2))
	w.fill["NEW"], w.fill["PID"] = w.listening(log), strconv.Itoa(pid)
	w.until("the new version reports", func() bool {
		return strings.Contains(w.shell(line(3), 3), newVersion+" canary")
	})
	var shaky []string
	for i := range 4 {
		shaky = append(shaky, w.subscriber(fmt.Sprint("/shaky-", i), "shaky"))
	}
	earlier := attempts(w.shell(line(4)))
	events := w.work()
	before, after := w.shell(line(4)), w.shell(line(5))
	w.contains(before, oldVersion)
	w.contains(after, newVersion, `slice="canary"`)
	w.alike(attempts(before).since(earlier), attempts(after))
	w.fill["DELIVERY"] = w.ofNew(shaky, events)
	w.contains(w.shell(line(6)), newVersion)

	w.shell(line(7))
	w.until("the new version has stopped", func() bool {
		return syscall.Kill(pid, 0) != nil || strings.Contains(w.shell("ps -o stat= -p PID", 1), "Z")
	})
	w.shell(line(8), 3)
	if now := w.state(id); now.State != client.RedrivePaused || now.Tally.Released != released {
		w.Errorf("the redrive is %s and has released %d; it was paused at %d", now.State, now.Tally.Released, released)
	}
	w.shell(line(9))
	w.shell(line(10))
	if r := w.state(id); r.State != client.RedriveDone || r.Tally.Delivered != letters {
		w.Errorf("the redrive is %s: %+v", r.State, r.Tally)
	}
	w.ledger()
	for _, id := range ids {
		if n, again := w.times(id); n != 1 || !again {
			w.Errorf("%s was applied %d times", id, n)
		}
	}
	for _, e := range events {
		for _, sub := range shaky {
			if n, _ := w.times(delivery.NewID(e, sub)); n != 1 {
				w.Errorf("event %s was applied %d times across the rollout", e, n)
			}
		}
	}
}

// running has a redrive that releases.
func (w *world) running(sub string) string {
	w.Helper()
	w.fill["SUB"] = sub
	id := redriveID.FindString(w.shell(`fanout redrive start --subscriber=SUB --reason="it is back"`))
	w.fill["REDRIVE"] = id
	w.awaits(id, client.RedriveAwaiting)
	w.shell(`fanout redrive approve REDRIVE --effect="the first is there, once"`)
	w.until("it releases", func() bool { return w.state(id).Tally.Released > 2 })
	return id
}

// quiet waits until what a paused redrive had out has ended, and returns how many that
// were.
func (w *world) quiet(id string) (released int64) {
	w.Helper()
	w.awaits(id, client.RedrivePaused)
	w.until("nothing of it is out", func() bool {
		y := w.state(id).Tally
		released = y.Released
		return y.Out == 0
	})
	return released
}

// enough attempts of a version to compare it by, here.
const enough = 300

// work posts events, a tenth of which is refused at first, until the new version has had
// its share.
func (w *world) work() (events []string) {
	w.Helper()
	w.until("the new version has made some hundred attempts", func() bool {
		events = append(events, w.post("shaky", 100)...)
		w.ledger()
		return attempts(w.shell(rollout.commands(w)[5])).all >= enough
	})
	return events
}

// ofNew is a delivery that the new version has tried.
func (w *world) ofNew(subs, events []string) string {
	w.Helper()
	for i, e := range events {
		id := delivery.NewID(e, subs[i%len(subs)])
		d, err := w.boss.GetDelivery(w.ctx, id)
		w.ok(err)
		for _, a := range d.Evidence {
			if a.Version == newVersion {
				return id
			}
		}
	}
	w.Fatal("no attempt of the new version is in the evidence")
	return ""
}

// tries are a version's attempts, as its metrics tell them.
type tries struct{ all, delivered, dead float64 }

func attempts(metrics string) (y tries) {
	for _, m := range regexp.MustCompile(`(?m)^fanout_(attempts|dead_letters)_total\{(.*)\} (\S+)$`).FindAllStringSubmatch(metrics, -1) {
		n, _ := strconv.ParseFloat(m[3], 64)
		switch {
		case m[1] == "dead_letters":
			y.dead += n
		case strings.Contains(m[2], `outcome="delivered"`):
			y.delivered += n
			y.all += n
		default:
			y.all += n
		}
	}
	return y
}

// since leaves out what was before: it is of another time.
func (y tries) since(earlier tries) tries {
	return tries{y.all - earlier.all, y.delivered - earlier.delivered, y.dead - earlier.dead}
}

// alike compares two versions: completion as the share of attempts that delivered, and
// dead letters over attempts. The noise of a share p of n is sqrt(p(1-p)/n).
func (w *world) alike(before, after tries) {
	w.Helper()
	if min(before.all, after.all) < enough {
		w.Fatalf("%.0f and %.0f attempts say nothing", before.all, after.all)
	}
	for what, share := range map[string][2]float64{
		"delivered": {before.delivered / before.all, after.delivered / after.all},
		"dead":      {before.dead / before.all, after.dead / after.all},
	} {
		noise := math.Sqrt(share[0] * (1 - share[0]) * (1/before.all + 1/after.all))
		w.Logf("%s: %s %.3f of %.0f attempts, %s %.3f of %.0f; noise %.3f", what, oldVersion, share[0], before.all, newVersion, share[1], after.all, noise)
		if math.Abs(share[0]-share[1]) > 5*noise+0.01 {
			w.Errorf("the share of %s is %.3f and %.3f: that is no noise", what, share[0], share[1])
		}
	}
}

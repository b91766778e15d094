package cli

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/fanout/fanout/client"
)

// statusCmd shows the service on one screen.
type statusCmd struct{}

// Run prints it; the exit code is that of triage.
func (*statusCmd) Run(ctx context.Context, s *session) error {
	look, err := lookAt(ctx, s)
	if err != nil {
		return err
	}
	err = s.show(func(t *table) { statusTable(t, look) })
	if err == nil && look.Triage.Page {
		err = &unwellError{}
	}
	return err
}

func statusTable(t *table, o client.OnCall) {
	verdict := strings.ReplaceAll(o.Triage.Diagnosis, "_", " ")
	if o.Triage.Page {
		verdict += ", ACT NOW: fanout triage"
	}
	t.row("verdict", verdict)
	t.row("says", oneLine(o.Triage.Sentence, 160))
	t.row("ready", ready(o))
	t.row("seen", age(o.StaleSeconds)+" ago")
	for _, c := range o.Classes {
		t.row("class "+c.Class, classLine(c))
	}
	l := o.Ledger
	t.row("deliveries", fmt.Sprintf("%d accepted = %d pending + %d delivered + %d dead + %d cancelled%s",
		l.Accepted, l.Pending, l.Delivered, l.Dead, l.Cancelled, unbalanced(l)))
	t.row("pending", fmt.Sprintf("%d in flight, %d held; lanes: %d ready, %d scheduled, %d limited", o.InFlight, o.DeliveriesHeld, o.Ready, o.Scheduled, o.Limited))
	t.row("on hold", count(int(o.SubscribersOnHold), "subscriber", "subscribers"))
	dead := strconv.FormatInt(o.DeadLetters, 10) + " kept"
	if o.DeadLetters > 0 {
		dead += ", the oldest " + age(o.OldestDeadSeconds) + " ago"
	}
	t.row("dead letters", dead)
	t.row("attempts", fmt.Sprintf("%d in the last minute, %d failed, of %s", o.Fleet.Attempts, o.Fleet.Failures, count(o.Fleet.FailingTotal, "subscriber", "subscribers")))
	t.row("due soon", fmt.Sprintf("%d retries within 15 minutes, at most %d in one", sum(o.Release.Due), peak(o.Release.Due)))
	t.row("slots", slotsLine(o.Fleet))
	for _, g := range o.Fleet.Groups {
		name := "dispatchers " + g.Version
		if g.Slice != "" {
			name += " " + g.Slice
		}
		t.row(name, fmt.Sprintf("%d, %d of %d slots in use", g.Dispatchers, g.Used, g.Slots))
	}
	t.row("redis", redisLine(o.Redis))
	for _, r := range o.Redrives {
		t.row("redrive "+r.RedriveID, fmt.Sprintf("%s: %d of %d released, %d delivered, %d dead again", r.State, r.Released, r.Members, r.Delivered, r.Dead))
	}
	for _, g := range o.Gaps {
		t.row("GAP "+g.Kind, strconv.FormatInt(g.Count, 10))
	}
}

func ready(o client.OnCall) string {
	if o.Trouble == "" {
		return "yes"
	}
	return "NO: " + oneLine(o.Trouble, 160)
}

// classLine is the oldest head of a class against its SLO.
func classLine(c client.OnCallClass) string {
	oldest := slices.MaxFunc(append([]client.OnCallLane{{}}, c.Lanes...), func(a, b client.OnCallLane) int {
		return cmp.Compare(a.OldestEligibleAgeSeconds, b.OldestEligibleAgeSeconds)
	})
	line := "nothing eligible waits"
	if oldest.OldestEligibleAgeSeconds > 0 {
		line = "oldest eligible " + age(oldest.OldestEligibleAgeSeconds) + " (" + oldest.Lane + ")"
	}
	line += "; SLO " + age(c.SLOSeconds)
	if c.Breaching {
		line += ", LATE"
	}
	return line
}

func unbalanced(l client.Ledger) string {
	if l.Balanced {
		return ""
	}
	return ", WHICH DOES NOT ADD UP"
}

func slotsLine(f client.Fleet) string {
	switch {
	case !f.Known:
		return "not known: the dispatchers' reports cannot be read"
	case f.Dispatchers == 0:
		return "NO DISPATCHER REPORTS"
	}
	line := fmt.Sprintf("%d of %d in use; %.0f attempts a second", f.Used, f.Slots, f.AttemptsPerSecond)
	if f.CapacityPerSecond > 0 {
		line += fmt.Sprintf(" of %.0f that they could carry", f.CapacityPerSecond)
	}
	return line
}

func redisLine(r client.OnCallRedis) string {
	const mib = 1 << 20
	line := fmt.Sprintf("%d MiB", r.UsedBytes/mib)
	if r.LimitBytes > 0 {
		line += fmt.Sprintf(" of %d", r.LimitBytes/mib)
	}
	return line + "; a look at it takes " + age(r.SampleSeconds)
}

func sum(due []int64) (n int64) {
	for _, d := range due {
		n += d
	}
	return n
}

func peak(due []int64) int64 {
	return slices.Max(append([]int64{0}, due...))
}

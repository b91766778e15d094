package cli

import (
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fanout/fanout/client"
)

// What a command says beside its answer is true, also while the subscriber is on hold.
func TestWhatIsSaidOfASubscriber(t *testing.T) {
	t.Parallel()
	s := newService(t)
	r := s.ok("subscribers", "create", "--url=http://127.0.0.1:9/hook", "--types=other.*")
	if !strings.Contains(r.out, "sending") {
		t.Errorf("created: %s", r.out)
	}
	made := s.subscriber(http.StatusOK, "--types=*", "--paused")
	s.ok("trigger", "shipment.created")
	var waiting struct{ Data []client.Delivery }
	until(t, "it waits", func() bool {
		s.read(&waiting, "deliveries", "ls", "--subscriber="+made.ID)
		return len(waiting.Data) == 1
	})
	if r := s.ok("deliveries", "retry", waiting.Data[0].ID); !strings.Contains(r.err, "on hold: paused: it goes when that has ended") {
		t.Errorf("a retry on hold: %s", r.err)
	}
	s.ok("subscribers", "resume", made.ID)
	until(t, "it is counted", func() bool {
		for line := range strings.Lines(s.ok("subscribers", "stats", made.ID).out) {
			if f := strings.Fields(line); f[0] == "delivered" && f[1] == "1" {
				return true
			}
		}
		return false
	})
	if r := s.ok("subscribers", "rm", made.ID, "--yes"); strings.Contains(r.err, "Waiting") {
		t.Errorf("it did not wait: %s", r.err)
	}
}

func TestSlownessIsSaid(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var out strings.Builder
		s := &session{err: &out}
		done := s.ifSlow(time.Second, "slow")
		time.Sleep(999 * time.Millisecond)
		done()
		if out.Len() > 0 {
			t.Errorf("too early: %q", out.String())
		}
		done = s.ifSlow(time.Second, "slow")
		time.Sleep(1001 * time.Millisecond)
		done()
		if out.String() != "slow\n" {
			t.Errorf("%q", out.String())
		}
	})
}

// Attempts that a delivery hardly comes to are left out, and it is said that they are.
func TestScheduleEndsWhereItEnds(t *testing.T) {
	t.Parallel()
	minutes := func(n int) client.Duration { return client.Duration(time.Duration(n) * time.Minute) }
	p := client.Schedule{
		Attempts: []client.ScheduledAttempt{
			{Attempt: 1},
			{Attempt: 2, Window: minutes(8), Mean: minutes(4), Latest: minutes(8)},
			{Attempt: 3, Window: minutes(16), Mean: minutes(12), Latest: minutes(10)},
			{Attempt: 4, Window: minutes(32), Mean: minutes(28), Latest: minutes(10)},
		},
		End: client.ScheduleEnd{Reason: "expired", Attempts: 2, Note: "It expires."},
	}
	for n, want := range map[int]string{
		2: "It expires.",
		3: "It expires. Attempt 3 is left out: only a delivery whose waits are drawn short comes so far.",
		4: "It expires. Attempts 3 to 4 are left out: only a delivery whose waits are drawn short comes so far.",
	} {
		q := p
		q.Attempts = p.Attempts[:n]
		if likely, text := likelyOf(q); len(likely) != 2 || text != want {
			t.Errorf("of %d: %v, %q", n, likely, text)
		}
	}
}

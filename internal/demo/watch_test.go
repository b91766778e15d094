package demo

import (
	"strings"
	"testing"
	"time"

	"github.com/fanout/fanout/client"
)

// Each look tells what changed since the last one, and nothing else.
func TestWatchTellsHolds(t *testing.T) {
	t.Parallel()
	sub := func(waiting int64, holds ...client.Hold) client.Subscriber {
		return client.Subscriber{
			ID: "sub_1", Policy: client.Policy{BreakerFailures: 2},
			Status: &client.SubscriberStatus{Holds: holds, Waiting: client.Waiting{Fresh: waiting - 1, Retry: 1}},
		}
	}
	breaker := func(in time.Duration) client.Hold {
		return client.Hold{Reason: client.Breaker, Until: noon.Add(in)}
	}
	probing := client.Hold{Reason: client.Breaker, Probe: deliveryID}
	paused := client.Hold{Reason: client.Paused, Note: "Somebody paused it."}
	var o output
	w := watch{screen: &screen{out: &o}}
	for i, step := range []struct {
		is   client.Subscriber
		want string // said of it, without time and name
	}{
		{sub(1), ""},
		{sub(3, breaker(time.Second)), "◌ breaker open 2 failures in a row: 3 waiting, a probe goes in 1s"},
		{sub(3, breaker(time.Second)), ""},
		{sub(2, probing), ""},
		{sub(4, breaker(3*time.Second)), "◌ breaker open the probe failed: 4 waiting, a probe goes in 3s"},
		{sub(4, paused, breaker(3*time.Second)), "◌ paused Somebody paused it."},
		{sub(4, breaker(3*time.Second)), "● no more paused its deliveries go on"},
		{sub(4), "● breaker closed its probe was answered: what waited goes on"},
		{sub(1), ""},
		{sub(0, breaker(time.Second)), "◌ breaker open 2 failures in a row: nothing waits"},
		{sub(1), "● breaker closed its probe was answered: what waited goes on"},
		{sub(2, probing), "◌ breaker open 2 failures in a row: 2 waiting, a probe is out"},
	} {
		before := len(o.String())
		w.look(noon, "hung-erp", step.is)
		said := strings.Fields(o.String()[before:])
		if len(said) > 0 && said[0] != "12:00:00.412" {
			t.Errorf("look %d: said %q, want its time first", i, said)
		}
		said = said[min(1, len(said)):]
		if got := strings.Replace(strings.Join(said, " "), " hung-erp", "", 1); got != step.want {
			t.Errorf("look %d: said %q, want %q", i, got, step.want)
		}
	}
	if st := w.of("sub_1"); st.opened != 3 || len(st.holds) != 1 {
		t.Errorf("it opened %d times and is on %v, want three times, and on one", st.opened, st.holds)
	}
}

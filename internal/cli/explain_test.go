package cli

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/fanout/fanout/client"
)

// knowing is an API that has these answers by method and path, and a problem with the
// status for everything else.
func knowing(t *testing.T, status int, answers map[string]any) string {
	t.Helper()
	mux := http.NewServeMux()
	for pattern, answer := range answers {
		b, err := json.Marshal(answer)
		if err != nil {
			t.Fatal(err)
		}
		mux.HandleFunc(pattern, func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(b) })
	}
	mux.HandleFunc("/", func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(status)
		_, _ = fmt.Fprintf(w, `{"status":%d,"code":"nothing","detail":"It is not here."}`, status)
	})
	s := httptest.NewServer(mux)
	t.Cleanup(s.Close)
	return s.URL
}

// A delivery is explained from what is left: the event's record goes after days, and a
// dead letter stays for weeks.
func TestExplainFromWhatIsLeft(t *testing.T) {
	t.Parallel()
	ended := func(state client.State) client.Delivery {
		d := aDelivery(state)
		d.EndedAt = before(time.Second)
		if state == client.Dead {
			d.Reason = "exhausted"
		}
		return d
	}
	evidence := anEvidence()
	evidence.RedriveID = ""
	for _, status := range []int{http.StatusNotFound, http.StatusForbidden} {
		for name, c := range map[string]struct {
			answers map[string]any
			says    []string
		}{
			"dead": {
				map[string]any{"GET /v1/deliveries/dlv_1": ended(client.Dead), "GET /v1/subscribers/sub_1": aSubscriber(), "GET /v1/dead-letters/dlv_1": evidence},
				[]string{"event evt_1 (shipment.delivered, shipment shp_1), whose record", "its budget of 2 attempts is spent", "only if an operator redrives it. Its payload", "fanout subscribers test sub_1"},
			},
			"delivered": {
				map[string]any{"GET /v1/deliveries/dlv_1": ended(client.Delivered), "GET /v1/subscribers/sub_1": aSubscriber()},
				[]string{"event evt_1, whose record", "Nothing: it is done."},
			},
			"its subscriber is gone": {
				map[string]any{"GET /v1/deliveries/dlv_1": ended(client.Dead), "GET /v1/dead-letters/dlv_1": evidence},
				[]string{"to subscriber sub_1, which ", "its budget of 2 attempts is spent", "fanout dead show dlv_1"},
			},
			"all is gone but the delivery": {
				map[string]any{"GET /v1/deliveries/dlv_1": ended(client.Dead)},
				[]string{"its budget of 2 attempts is spent", "unless a redrive that is under way has it: fanout redrive ls"},
			},
		} {
			t.Run(fmt.Sprint(name, status), func(t *testing.T) {
				t.Parallel()
				api := knowing(t, status, c.answers)
				r := run(t, "", "explain", "dlv_1", "--api="+api)
				if r.code != exitOK || r.err != "" || strings.Contains(r.out, "fanout events show") {
					t.Errorf("exit code %d\n%s%s", r.code, r.out, r.err)
				}
				for _, want := range c.says {
					if !strings.Contains(r.out, want) {
						t.Errorf("it does not say %q:\n%s", want, r.out)
					}
				}
				if r := run(t, "", "explain", "dlv_1", "-o", "json", "--api="+api); r.code != exitOK || !json.Valid([]byte(r.out)) {
					t.Errorf("as JSON: exit code %d\n%s%s", r.code, r.out, r.err)
				}
			})
		}
	}
	away := knowing(t, http.StatusInternalServerError, map[string]any{"GET /v1/deliveries/dlv_1": ended(client.Dead)})
	if r := run(t, "", "explain", "dlv_1", "--api="+away); r.code != exitFailed {
		t.Errorf("a fault is no absence: %+v", r)
	}
}

// A dead letter that a redrive has is not told to need one.
func TestExplainNamesTheRedrive(t *testing.T) {
	t.Parallel()
	for state, says := range map[client.RedriveState]string{
		client.RedrivePlanning: "is at planning: it is sent again as one of the canaries (1)",
		client.RedriveCanary:   "is at canary",
		client.RedriveAwaiting: "waits for an operator to approve",
		client.RedriveRunning:  "runs: it is sent again when its turn comes",
		client.RedrivePaused:   "is paused by guard (no dispatcher is at work): it is sent again after a resume",
		client.RedriveAborted:  "lets go of it unsent",
		"":                     "Redrive rdv_1 has it, and sends it again when its turn comes",
	} {
		t.Run(string(state), func(t *testing.T) {
			t.Parallel()
			answers := map[string]any{"GET /v1/deliveries/dlv_1": aDelivery(client.Dead), "GET /v1/dead-letters/dlv_1": anEvidence()}
			if state != "" {
				answers["GET /v1/redrives/rdv_1"] = aRedrive(state)
			}
			r := run(t, "", "explain", "dlv_1", "--api="+knowing(t, http.StatusForbidden, answers))
			if r.code != exitOK || !strings.Contains(r.out, says) || !strings.Contains(r.out, "Redrive rdv_1") || strings.Contains(r.out, "Nothing by itself") {
				t.Errorf("exit code %d, and it does not say %q\n%s%s", r.code, says, r.out, r.err)
			}
			if !strings.Contains(r.out, "fanout redrive show rdv_1") {
				t.Errorf("it does not say how to see the redrive:\n%s", r.out)
			}
		})
	}
}

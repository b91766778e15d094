package httpapi

import (
	"strings"
	"testing"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/fanout/fanout/internal/delivery"
)

// No example of a delivery says two things at once, and those of the operations on one
// differ as their answers do.
func TestExamplesOfDeliveriesAgreeWithThemselves(t *testing.T) {
	t.Parallel()
	spec := readContract()
	check := func(what, text string) Delivery {
		t.Helper()
		var d Delivery
		if err := json.Unmarshal([]byte(text), &d, json.RejectUnknownMembers(true)); err != nil {
			t.Fatalf("%s: %v\n%s", what, err, text)
		}
		ended := d.State != delivery.Scheduled && d.State != delivery.Leased
		if ended == d.EndedAt.IsZero() || (d.State == delivery.Scheduled) == d.NextAttemptAt.IsZero() || (d.State == delivery.Delivered) != (d.LastOutcome == "delivered") {
			t.Errorf("%s is %s: %s", what, d.State, text)
		}
		if d.Reason != "" && d.State != delivery.Dead || d.NextAttemptAt.Before(d.LastAttemptAt) && !ended || ended && d.EndedAt.Before(d.LastAttemptAt) {
			t.Errorf("%s: %s", what, text)
		}
		return d
	}
	states := map[string]DeliveryState{}
	for _, path := range spec.Paths.all() {
		for _, op := range path.Operations {
			for _, a := range spec.describe(op, path.Parameters).Answers {
				if a.Schema == "Delivery" {
					states[op.OperationID] = check(op.OperationID, a.Example).State
				}
			}
		}
	}
	if states["getDelivery"] != delivery.Scheduled || states["retryDelivery"] != delivery.Scheduled || states["cancelDelivery"] != delivery.Cancelled {
		t.Errorf("states: %v", states)
	}
	for _, name := range []string{"DeadLetter", "DeadLetterEvidence"} {
		schema := spec.Components.Schemas.values[name]
		var dead struct {
			Reason   string
			Delivery jsontext.Value
		}
		if err := json.Unmarshal([]byte(spec.example(schema)), &dead, json.MatchCaseInsensitiveNames(true)); err != nil {
			t.Fatal(err)
		}
		if d := check(name, string(dead.Delivery)); d.State != delivery.Dead || strings.TrimSpace(dead.Reason) != "exhausted" {
			t.Errorf("%s: %s", name, d.State)
		}
	}
}

package httpapi

import (
	"encoding/json"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/fanout/fanout/internal/delivery"
)

// sampleOf is the example that /docs shows of a schema.
func sampleOf[T any](t *testing.T, name string) T {
	t.Helper()
	spec := readContract()
	text := spec.example(spec.Components.Schemas.values[name])
	var v T
	if err := json.Unmarshal([]byte(text), &v); err != nil {
		t.Fatalf("the example of %s: %v\n%s", name, err, text)
	}
	return v
}

// Whoever copies an example gets what the defaults give, not deliveries that die soon.
func TestSampledPolicyIsTheDefault(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"Policy", "PolicyInput"} {
		got, want := sampleOf[delivery.Policy](t, name), delivery.DefaultPolicy()
		got.Classify = nil // it has none by default; the example shows how one is written
		if !reflect.DeepEqual(got, want) {
			t.Errorf("%s is %+v, the default %+v", name, got, want)
		}
	}
}

// The example of a schedule is one of the default policy.
func TestSampledScheduleIsPlausible(t *testing.T) {
	t.Parallel()
	got := sampleOf[SchedulePreview](t, "SchedulePreview")
	want := previewView(delivery.DefaultPolicy(), delivery.Preview(delivery.DefaultPolicy(), 0))
	if got.End != want.End {
		t.Errorf("the end is %+v, of the default %+v", got.End, want.End)
	}
	for _, a := range got.Attempts {
		if a != want.Attempts[a.Attempt-1] {
			t.Errorf("attempt %+v, of the default %+v", a, want.Attempts[a.Attempt-1])
		}
	}
}

// No example leaves what is required null: it was so for what lies deep.
func TestSamplesHaveWhatIsRequired(t *testing.T) {
	t.Parallel()
	page := string(reference().html)
	for line := range strings.SplitSeq(page, "\n") {
		if strings.Contains(line, "null") && strings.Contains(line, "&#34;: null") && !strings.Contains(line, "next_cursor") {
			t.Errorf("an example has %s", line)
		}
	}
	list := sampleOf[SubscriberList](t, "SubscriberList")
	hold := list.Data[0].Status.Holds[0]
	if hold.Reason == "" || hold.Note == "" || hold.Until.IsZero() {
		t.Errorf("a hold in a list is %+v", hold)
	}
	d := sampleOf[Delivery](t, "Delivery")
	if age := d.ExpiresAt.Sub(d.AcceptedAt); age != 24*time.Hour {
		t.Errorf("a delivery expires %s after it was accepted, by default it is a day", age)
	}
}

// A batch's example has what its counts say, the refused one with its problem.
func TestSampledBatchAddsUp(t *testing.T) {
	t.Parallel()
	b := sampleOf[BatchReceipt](t, "BatchReceipt")
	if len(b.Results) != b.Accepted+b.Duplicates+b.Refused {
		t.Errorf("%d results for %d accepted, %d duplicates, %d refused", len(b.Results), b.Accepted, b.Duplicates, b.Refused)
	}
	for i, r := range b.Results {
		if r.Index != i || (r.Status == 202) != (r.Deliveries != nil) {
			t.Errorf("result %d is %+v", i, r)
		}
		if p := r.Problem; r.Status != 202 && (p.Status != r.Status || p.Title != kinds[p.Code].title || !strings.HasPrefix(*p.Errors[0].Pointer, "/events/1/")) {
			t.Errorf("result %d is refused with %+v", i, p)
		}
	}
}

// Lists of values are shown whole.
func TestReferenceShowsEveryValue(t *testing.T) {
	t.Parallel()
	page := string(reference().html)
	for _, name := range []string{"Outcome", "ProblemCode"} {
		values := readContract().Components.Schemas.values[name].Enum
		if !strings.Contains(page, "one of "+strings.Join(values, ", ")+"<") {
			t.Errorf("the values of %s are not all there", name)
		}
	}
}

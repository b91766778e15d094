package oncall

import (
	"bytes"
	"context"
	"encoding/json"
	"flag"
	"net/http"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/fanout/fanout/internal/schedule"
)

var update = flag.Bool("update", false, "write testdata/oncall.json anew")

// The whole of GET /v1/oncall over a busy service in trouble, as it stands in
// testdata/oncall.json.
func TestJSON(t *testing.T) {
	t.Parallel()
	s := late()
	s.Ages = slices.DeleteFunc(s.Ages, func(a schedule.Ages) bool { return a.Class != "standard" })
	s.Limited, s.OldestDead, s.DueFrom, s.Due[1] = 2, ago(time.Hour), redisNow.Truncate(time.Minute), 40
	source := &fakeSource{sample: s, dead: deadLetters()[:1], workers: readSituation(t, "testdata/situations/concentrated-outage.json").Workers}
	o := newOnCall(t, source, Options{
		Classes: map[string]time.Duration{"standard": 30 * time.Second},
		Redrives: func(context.Context) ([]LiveRedrive, error) {
			return []LiveRedrive{{ID: "rdv_1", State: "paused", Reason: "it is back", Rate: 1, Members: 10, Released: 3, Delivered: 2, Dead: 1, Stopped: "a tenth failed"}}, nil
		},
		Memory: func(context.Context) (int64, int64, error) { return 1000, 2000, nil },
		Gaps: func() (map[schedule.Gap]int64, []schedule.Finding) {
			return map[schedule.Gap]int64{schedule.GapNoPlace: 1, schedule.GapStray: 0}, nil
		},
	})
	res, _ := get(t, o.JSON(), "/v1/oncall")
	if res.StatusCode != http.StatusServiceUnavailable || res.Header.Get("Retry-After") == "" {
		t.Errorf("before the first sample: %s, Retry-After %q", res.Status, res.Header.Get("Retry-After"))
	}
	o.sample(t.Context())
	o.trouble = "Redis refuses writes"
	res, body := get(t, o.JSON(), "/v1/oncall")
	if res.StatusCode != http.StatusOK || res.Header.Get("Content-Type") != "application/json" {
		t.Errorf("got %s, %s", res.Status, res.Header.Get("Content-Type"))
	}
	body = regexp.MustCompile(`"(stale|sample)_seconds":[0-9.e-]+`).ReplaceAllString(body, `"${1}_seconds":0`)
	var pretty bytes.Buffer
	if err := json.Indent(&pretty, []byte(body), "", "  "); err != nil {
		t.Fatal(err)
	}
	const golden = "testdata/oncall.json"
	if *update {
		if err := os.WriteFile(golden, pretty.Bytes(), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), pretty.String()); diff != "" {
		t.Errorf("report (-want +got); -update writes it anew:\n%s", diff)
	}
}

// What is empty is an empty list, and no null.
func TestJSONIsWhole(t *testing.T) {
	t.Parallel()
	_, body := get(t, sampled(t, schedule.Sample{Now: redisNow}).JSON(), "/v1/oncall")
	if strings.Contains(body, "null") {
		t.Errorf("a null in %s", body)
	}
}

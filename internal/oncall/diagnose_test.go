package oncall

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/fanout/fanout/internal/delivery"
	"github.com/fanout/fanout/internal/schedule"
)

// situation is a recorded one: what was seen, told by how long ago, and what triage must
// say to it.
type situation struct {
	Story string `json:"story"`
	Want  struct {
		Diagnosis Diagnosis `json:"diagnosis"`
		Page      bool      `json:"page"`
		Answers   []Says    `json:"answers"`
	} `json:"want"`
	Ages map[string]struct { // by class/lane
		Eligible delivery.Duration `json:"eligible"`
		Limited  delivery.Duration `json:"limited"`
		Held     delivery.Duration `json:"held"`
		LateFor  delivery.Duration `json:"late_for"`
	} `json:"ages"`
	Workers      []schedule.WorkerReport `json:"workers"`
	UnknownFleet bool                    `json:"unknown_fleet"`
	Leases       *int64                  `json:"leases"`
	Held         int64                   `json:"held"`
	OnHold       int64                   `json:"on_hold"`
	Limited      int64                   `json:"limited"`
	Due          [releaseMinutes]int64   `json:"due"`
	Imbalance    int64                   `json:"imbalance"`
	NewlyDead    int64                   `json:"newly_dead"`
	Gaps         map[schedule.Gap]int64  `json:"gaps"`
	Stale        delivery.Duration       `json:"stale"`
	Trouble      string                  `json:"trouble"`
	Holds        []struct {
		ID       string            `json:"id"`
		Reasons  []schedule.Hold   `json:"reasons"`
		SinceAgo delivery.Duration `json:"since_ago"`
		Pending  int64             `json:"pending"`
	} `json:"holds"`
	Past []struct {
		Ago      delivery.Duration `json:"ago"`
		Eligible delivery.Duration `json:"eligible"` // of class standard
	} `json:"past"`
}

func readSituation(t *testing.T, file string) situation {
	t.Helper()
	b, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	d := json.NewDecoder(strings.NewReader(string(b)))
	d.DisallowUnknownFields()
	var s situation
	if err := d.Decode(&s); err != nil {
		t.Fatalf("%s: %v", file, err)
	}
	return s
}

var situationClasses = map[string]time.Duration{"standard": time.Minute, "express": time.Minute}

// diagnose makes the situation what triage sees.
func (s situation) diagnose() Triage {
	sample := schedule.Sample{
		Now:    redisNow,
		Ledger: schedule.Ledger{Accepted: 1000 + s.Imbalance + s.NewlyDead, Pending: 100, Delivered: 890, Dead: 10 + s.NewlyDead},
		Leases: 10, Held: s.Held, OnHold: s.OnHold, Limited: s.Limited, Due: s.Due, DueFrom: redisNow.Truncate(time.Minute),
	}
	if s.Leases != nil {
		sample.Leases = *s.Leases
	}
	late := map[string]time.Duration{}
	for name, a := range s.Ages {
		class, lane, _ := strings.Cut(name, "/")
		at := func(d delivery.Duration) time.Time {
			if d == 0 {
				return time.Time{}
			}
			return ago(time.Duration(d))
		}
		sample.Ages = append(sample.Ages, schedule.Ages{
			Class: class, Lane: delivery.Lane(lane), Eligible: at(a.Eligible), Limited: at(a.Limited), Held: at(a.Held),
		})
		late[class] = max(late[class], time.Duration(a.LateFor))
	}
	snap := snapshot(situationClasses, sample, time.Now(), nil)
	for i, c := range snap.Classes {
		snap.Classes[i].LateFor = late[c.Name]
	}
	snap.Gaps = s.Gaps
	if !s.UnknownFleet {
		snap.Fleet = fleetOf(s.Workers)
	}
	for _, h := range s.Holds {
		snap.Holds = append(snap.Holds, HeldSubscriber{ID: h.ID, Reasons: h.Reasons, Since: ago(time.Duration(h.SinceAgo)), Pending: h.Pending})
	}
	var past Past
	for _, p := range s.Past {
		past.Fine = append(past.Fine, Point{
			At: ago(time.Duration(p.Ago)), Classes: []PointClass{{Name: "standard", Eligible: time.Duration(p.Eligible)}},
			Dead: 10,
		})
	}
	return Diagnose(snap, past, Sight{Stale: time.Duration(s.Stale), Trouble: s.Trouble}, 5*time.Second)
}

func TestDiagnose(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("testdata/situations/*.json")
	if err != nil || len(files) < 20 {
		t.Fatalf("%d situations, %v", len(files), err)
	}
	seen := map[Diagnosis]bool{NotSampled: true} // TestDiagnoseStarting
	for _, file := range files {
		s := readSituation(t, file)
		seen[s.Want.Diagnosis] = true
		t.Run(strings.TrimSuffix(filepath.Base(file), ".json"), func(t *testing.T) {
			t.Parallel()
			got := s.diagnose()
			says := make([]Says, 0, len(got.Answers))
			for _, a := range got.Answers {
				says = append(says, a.Says)
				if a.Sentence == "" || a.Question == "" || (a.Says != Unknown && len(a.Evidence) == 0) {
					t.Errorf("an answer without its sentence or evidence: %+v", a)
				}
			}
			if got.Diagnosis != s.Want.Diagnosis || got.Page != s.Want.Page {
				t.Errorf("%s\ngot %s, page %v: %s\nwant %s, page %v", s.Story, got.Diagnosis, got.Page, got.Sentence, s.Want.Diagnosis, s.Want.Page)
			}
			if diff := cmp.Diff(s.Want.Answers, says); diff != "" {
				t.Errorf("answers (-want +got):\n%s%+v", diff, got.Answers)
			}
			if got.Sentence == "" || got.Runbook == "" || strings.Contains(got.Runbook, "_") {
				t.Errorf("sentence %q, runbook %q", got.Sentence, got.Runbook)
			}
			if again := s.diagnose(); !cmp.Equal(got, again) {
				t.Errorf("the same situation is told in another way: %s", cmp.Diff(got, again))
			}
		})
	}
	for _, d := range Diagnoses {
		if !seen[d] {
			t.Errorf("no situation for %s", d)
		}
	}
}

func TestDiagnoseStarting(t *testing.T) {
	t.Parallel()
	got := Diagnose(Snapshot{Classes: classesOf(twoClasses)}, Past{}, Sight{}, 5*time.Second)
	if got.Diagnosis != NotSampled || got.Page || got.Answers[0].Says != Unknown {
		t.Errorf("%+v", got)
	}
}

// What one poison delivery did is to be seen, though it wakes nobody.
func TestPoisonShows(t *testing.T) {
	t.Parallel()
	got := readSituation(t, "testdata/situations/poison.json").diagnose()
	shown := false
	for _, n := range got.Notes {
		shown = shown || strings.Contains(n.Text, "1 delivery died in the last hour")
	}
	if !shown {
		t.Errorf("not shown: %+v", got.Notes)
	}
}

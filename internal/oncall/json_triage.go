package oncall

import (
	"time"

	"github.com/fanout/fanout/internal/delivery"
	"github.com/fanout/fanout/internal/schedule"
)

// What GET /v1/oncall says beyond the ages: api/openapi.yaml has what each means.
type (
	triageJSON struct {
		Diagnosis Diagnosis      `json:"diagnosis"`
		Page      bool           `json:"page"`
		Sentence  string         `json:"sentence"`
		Runbook   string         `json:"runbook"`
		Answers   []answerJSON   `json:"answers"`
		Notes     []evidenceJSON `json:"notes"`
	}
	answerJSON struct {
		ID       QuestionID     `json:"id"`
		Question string         `json:"question"`
		Says     Says           `json:"says"`
		Sentence string         `json:"sentence"`
		Evidence []evidenceJSON `json:"evidence"`
	}
	evidenceJSON struct {
		Text string `json:"text"`
		Link string `json:"link"`
	}
	fleetJSON struct {
		Known        bool                      `json:"known"`
		Dispatchers  int                       `json:"dispatchers"`
		Groups       []groupJSON               `json:"groups"`
		Slots        int                       `json:"slots"`
		Used         int                       `json:"used"`
		Uses         []useJSON                 `json:"uses"`
		Limits       schedule.SlotLimits       `json:"limits"`
		PerSecond    float64                   `json:"attempts_per_second"`
		SlotSeconds  float64                   `json:"slot_seconds"`
		Capacity     float64                   `json:"capacity_per_second"`
		RedisSeconds float64                   `json:"redis_seconds"`
		Attempts     int64                     `json:"attempts"`
		Failures     int64                     `json:"failures"`
		Recent       []schedule.RecentAttempts `json:"recent"`
		Failing      []failingJSON             `json:"failing"`
		FailingTotal int                       `json:"failing_total"`
	}
	groupJSON struct {
		Version     string `json:"version"`
		Slice       string `json:"slice"`
		Dispatchers int    `json:"dispatchers"`
		Slots       int    `json:"slots"`
		Used        int    `json:"used"`
	}
	useJSON struct {
		Pool string        `json:"pool"`
		Lane delivery.Lane `json:"lane"`
		Used int           `json:"used"`
	}
	failingJSON struct {
		SubscriberID string           `json:"subscriber_id"`
		Class        string           `json:"class"`
		Outcome      delivery.Outcome `json:"outcome"`
		Count        int64            `json:"count"`
		Share        float64          `json:"share"`
		Since        time.Time        `json:"since"`
		DeliveryID   string           `json:"delivery_id"`
	}
	releaseJSON struct {
		From time.Time             `json:"from"`
		Due  [releaseMinutes]int64 `json:"due"`
	}
	redisJSON struct {
		Used    int64   `json:"used_bytes"`
		Limit   int64   `json:"limit_bytes"`
		Seconds float64 `json:"sample_seconds"`
	}
	gapJSON struct {
		Kind  schedule.Gap `json:"kind"`
		Count int64        `json:"count"`
	}
	redriveJSON struct {
		ID        string  `json:"redrive_id"`
		State     string  `json:"state"`
		Reason    string  `json:"reason"`
		Rate      float64 `json:"rate"`
		Members   int64   `json:"members"`
		Released  int64   `json:"released"`
		Delivered int64   `json:"delivered"`
		Dead      int64   `json:"dead"`
		Stopped   string  `json:"stopped"`
		HeldBack  string  `json:"held_back"`
	}
)

func triageReport(t Triage) triageJSON {
	j := triageJSON{
		Diagnosis: t.Diagnosis, Page: t.Page, Sentence: t.Sentence, Runbook: t.Runbook, Notes: evidenceReport(t.Notes),
	}
	for _, a := range t.Answers {
		j.Answers = append(j.Answers, answerJSON{a.ID, a.Question, a.Says, a.Sentence, evidenceReport(a.Evidence)})
	}
	return j
}

func evidenceReport(list []Evidence) []evidenceJSON {
	out := make([]evidenceJSON, 0, len(list))
	for _, e := range list {
		out = append(out, evidenceJSON(e))
	}
	return out
}

func fleetReport(f Fleet) fleetJSON {
	j := fleetJSON{
		Known: f.Known, Dispatchers: len(f.Workers), Groups: make([]groupJSON, 0, len(f.Groups)), Slots: f.Slots, Used: f.Used,
		Uses: make([]useJSON, 0, len(f.Uses)), Limits: schedule.SlotLimits{Slow: f.SlowLimit, Retry: f.RetryLimit, Redrive: f.RedriveLimit},
		PerSecond: f.PerSecond, SlotSeconds: f.SlotSeconds, Capacity: f.Capacity, RedisSeconds: f.RedisLatency.Seconds(),
		Attempts: f.Attempts, Failures: f.Failures, Recent: append([]schedule.RecentAttempts{}, f.Recent...),
		Failing: make([]failingJSON, 0, len(f.Failing)), FailingTotal: f.FailingTotal,
	}
	for _, g := range f.Groups {
		j.Groups = append(j.Groups, groupJSON{g.Version, g.Slice, g.Workers, g.Slots, g.Used})
	}
	for _, u := range f.Uses {
		j.Uses = append(j.Uses, useJSON(u))
	}
	for _, one := range f.Failing {
		j.Failing = append(j.Failing, failingJSON(one))
	}
	return j
}

func releaseReport(r Release) releaseJSON { return releaseJSON{r.From.UTC(), r.Due} }

func redisReport(s Snapshot) redisJSON {
	return redisJSON{s.Memory.Used, s.Memory.Max, s.Took.Seconds()}
}

func gapsReport(gaps map[schedule.Gap]int64) []gapJSON {
	out := []gapJSON{}
	for _, gap := range schedule.Gaps {
		if n := gaps[gap]; n > 0 {
			out = append(out, gapJSON{gap, n})
		}
	}
	return out
}

func redrivesReport(list []LiveRedrive) []redriveJSON {
	out := make([]redriveJSON, 0, len(list))
	for _, r := range list {
		out = append(out, redriveJSON{
			r.ID, r.State, r.Reason, r.Rate, r.Members, r.Released, r.Delivered, r.Dead, r.Stopped, r.HeldBack,
		})
	}
	return out
}

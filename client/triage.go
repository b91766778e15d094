package client

import "time"

// Triage is what is the matter, and whether it is worth being woken for.
type Triage struct {
	Diagnosis string           `json:"diagnosis"` // such as "concentrated_outage"
	Page      bool             `json:"page"`      // somebody must act now
	Sentence  string           `json:"sentence"`
	Runbook   string           `json:"runbook"` // the section to follow
	Answers   []TriageAnswer   `json:"answers"` // four, in the order in which they are asked
	Notes     []TriageEvidence `json:"notes"`
}

// TriageAnswer is a question and what the figures say to it.
type TriageAnswer struct {
	ID       string           `json:"id"` // slo, concentrated, saturated or retries
	Question string           `json:"question"`
	Says     string           `json:"says"` // no, watch, yes or unknown
	Sentence string           `json:"sentence"`
	Evidence []TriageEvidence `json:"evidence"`
}

// TriageEvidence is a fact, and where in the API to look; Link may be "".
type TriageEvidence struct {
	Text string `json:"text"`
	Link string `json:"link"`
}

// Fleet is what the dispatchers say of themselves, put together.
type Fleet struct {
	Known             bool                `json:"known"`
	Dispatchers       int                 `json:"dispatchers"`
	Groups            []FleetGroup        `json:"groups"`
	Slots             int                 `json:"slots"`
	Used              int                 `json:"used"`
	Uses              []FleetUse          `json:"uses"`
	Limits            SlotLimits          `json:"limits"`
	AttemptsPerSecond float64             `json:"attempts_per_second"`
	SlotSeconds       float64             `json:"slot_seconds"`
	CapacityPerSecond float64             `json:"capacity_per_second"` // 0: not known
	RedisSeconds      float64             `json:"redis_seconds"`
	Attempts          int64               `json:"attempts"` // of the last minute
	Failures          int64               `json:"failures"`
	Recent            []RecentAttempts    `json:"recent"`
	Failing           []FailingSubscriber `json:"failing"`
	FailingTotal      int                 `json:"failing_total"`
}

// FleetGroup is the dispatchers of one version and slice.
type FleetGroup struct {
	Version     string `json:"version"`
	Slice       string `json:"slice"`
	Dispatchers int    `json:"dispatchers"`
	Slots       int    `json:"slots"`
	Used        int    `json:"used"`
}

// FleetUse is the slots in use of one pool and lane.
type FleetUse struct {
	Pool string `json:"pool"`
	Lane string `json:"lane"`
	Used int    `json:"used"`
}

// SlotLimits are how many slots each may use.
type SlotLimits struct {
	Slow    int `json:"slow"`
	Retry   int `json:"retry"`
	Redrive int `json:"redrive"`
}

// RecentAttempts are the attempts of the last minute of one class and outcome.
type RecentAttempts struct {
	Class   string `json:"class"`
	Outcome string `json:"outcome"`
	Count   int64  `json:"count"`
}

// FailingSubscriber is one whose attempts fail.
type FailingSubscriber struct {
	SubscriberID string    `json:"subscriber_id"`
	Class        string    `json:"class"`
	Outcome      string    `json:"outcome"`
	Count        int64     `json:"count"`
	Share        float64   `json:"share"`
	Since        time.Time `json:"since"`
	DeliveryID   string    `json:"delivery_id"`
}

// Release is how many deliveries fall due by themselves, minute by minute from From.
type Release struct {
	From time.Time `json:"from"`
	Due  []int64   `json:"due"`
}

// OnCallRedis is Redis as on-call sees it.
type OnCallRedis struct {
	UsedBytes     int64   `json:"used_bytes"`
	LimitBytes    int64   `json:"limit_bytes"` // 0: none
	SampleSeconds float64 `json:"sample_seconds"`
}

// Gap is something that does not add up.
type Gap struct {
	Kind  string `json:"kind"`
	Count int64  `json:"count"`
}

// OnCallRedrive is a redrive under way.
type OnCallRedrive struct {
	RedriveID string  `json:"redrive_id"`
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

package schedule

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/fanout/fanout/internal/delivery"
)

// workersPrefix is where dispatchers report, in a slot of its own.
const workersPrefix = "{fo:workers}:"

// silentAfter is when a dispatcher that reports no more is taken for gone.
const silentAfter = 15 * time.Second

// WorkerReport is what a dispatcher says of itself now and then. It decides nothing
// about deliveries: it is there for people, and for what an operator's repair may use.
type WorkerReport struct {
	// Worker is unique to a process's life; Version is its build, and Slice what its
	// operator calls the part of the fleet that it belongs to.
	Worker  string `json:"worker"`
	Version string `json:"version"`
	Slice   string `json:"slice,omitempty"`
	// At is when it reported last, Redis time.
	At        time.Time `json:"-"`
	StartedAt time.Time `json:"started_at"`
	// Slots it has, and those in use by pool and lane ("fast/fresh").
	Slots int            `json:"slots"`
	InUse map[string]int `json:"in_use"`
	// Attempts, Delivered and Dead since it started; Failed are the attempts that did
	// not deliver.
	Attempts  int64 `json:"attempts"`
	Delivered int64 `json:"delivered"`
	Failed    int64 `json:"failed"`
	Dead      int64 `json:"dead"`
	// PerSecond is attempts a second over the last report's time, and SlotSeconds how
	// long each of them had its slot; the last known while there are none.
	PerSecond   float64 `json:"per_second"`
	SlotSeconds float64 `json:"slot_seconds"`
	// RedisSeconds is how long a call of Redis took it, in the mean since its last
	// report; the last known while there are none.
	RedisSeconds float64 `json:"redis_seconds,omitempty"`
	// Limits of its slots: how many of them what is named may have.
	Limits SlotLimits `json:"limits,omitzero"`
	// Recent are the attempts of the last minute by class and outcome.
	Recent []RecentAttempts `json:"recent,omitempty"`
	// Lately are the attempts of the last 10 s, and those of them that failed: whether
	// what the minute shows is over.
	Lately Tries `json:"lately,omitzero"`
	// Failing are the subscribers that failed most in the last minute, at most 10, the
	// most first; FailingTotal how many failed at all, as far as it keeps count.
	Failing      []FailingSubscriber `json:"failing,omitempty"`
	FailingTotal int                 `json:"failing_total,omitempty"`
}

// SlotLimits are how many slots may be used by subscribers that take long, by retries
// and by redrives.
type SlotLimits struct {
	Slow    int `json:"slow"`
	Retry   int `json:"retry"`
	Redrive int `json:"redrive"`
}

// Tries are attempts, and those of them that did not deliver.
type Tries struct {
	Attempts int64 `json:"attempts"`
	Failures int64 `json:"failures"`
}

// RecentAttempts are the attempts of one class that came to one outcome.
type RecentAttempts struct {
	Class   string           `json:"class"`
	Outcome delivery.Outcome `json:"outcome"`
	Count   int64            `json:"count"`
}

// FailingSubscriber is one whose attempts fail.
type FailingSubscriber struct {
	SubscriberID string `json:"subscriber_id"`
	Class        string `json:"class"`
	// Outcome is the last failure's, DeliveryID its delivery.
	Outcome    delivery.Outcome `json:"outcome"`
	DeliveryID string           `json:"delivery_id"`
	Count      int64            `json:"count"`
	// Since is the first failure after the last success that this worker saw, by the
	// clock of Redis.
	Since time.Time `json:"since"`
}

// Used is how many slots are in use.
func (r WorkerReport) Used() int {
	n := 0
	for _, used := range r.InUse {
		n += used
	}
	return n
}

// Report keeps a report for others to read, at most a minute long.
func (e *Engine) Report(ctx context.Context, r WorkerReport) error {
	text, err := json.Marshal(r)
	if err != nil {
		return fmt.Errorf("report: %w", err)
	}
	_, err = e.run1(ctx, e.scripts.report, workersPrefix, r.Worker, text)
	return err
}

// Workers returns the reports of the dispatchers that are there, by name.
func (e *Engine) Workers(ctx context.Context) ([]WorkerReport, error) {
	var cmd *redis.MapStringStringCmd
	err := e.read(ctx, "workers", func(p redis.Pipeliner) { cmd = p.HGetAll(ctx, workersPrefix+"reports") })
	if err != nil {
		return nil, err
	}
	now, err := e.Now(ctx)
	if err != nil {
		return nil, err
	}
	return workersAt(cmd.Val(), now)
}

// workersAt reads reports, but for those that are old.
func workersAt(reports map[string]string, now time.Time) ([]WorkerReport, error) {
	var out []WorkerReport
	for worker, text := range reports {
		stamp, report, _ := strings.Cut(text, " ")
		ms, err := strconv.ParseInt(stamp, 10, 64)
		r := WorkerReport{}
		if err == nil {
			err = json.Unmarshal([]byte(report), &r)
		}
		if err != nil {
			return nil, fmt.Errorf("report of %s: %w", worker, err)
		}
		if r.At = fromMillis(ms); now.Sub(r.At) <= silentAfter {
			out = append(out, r)
		}
	}
	slices.SortFunc(out, func(a, b WorkerReport) int { return strings.Compare(a.Worker, b.Worker) })
	return out, nil
}

package schedule

import (
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/fanout/fanout/internal/delivery"
)

// words is the number of words in a record; lua/prelude.lua writes them.
const words = 22

var errRecord = errors.New("damaged delivery record")

// The single letters that records use.
var (
	stateOf = map[string]delivery.State{
		"s": delivery.Scheduled, "l": delivery.Leased, "d": delivery.Delivered,
		"x": delivery.Dead, "c": delivery.Cancelled,
	}
	laneOf = map[string]delivery.Lane{
		"f": delivery.Fresh, "r": delivery.Retry, "d": delivery.Redrive,
	}
	letterOf = map[delivery.State]string{
		delivery.Scheduled: "s", delivery.Delivered: "d", delivery.Dead: "x",
	}
)

// record is a delivery and the words of its record that are no part of it.
type record struct {
	delivery.Delivery
	Reason delivery.Outcome
}

// decode reads the record that lua/prelude.lua encodes.
func decode(id, text string) (record, error) {
	w := strings.Split(text, " ")
	if len(w) != words {
		return record{}, fmt.Errorf("%s: %d words instead of %d: %w", id, len(w), words, errRecord)
	}
	var bad error
	num := func(i int) int64 {
		n, err := strconv.ParseInt(w[i], 10, 64)
		if err != nil && bad == nil {
			bad = fmt.Errorf("%s: word %d: %w", id, i+1, errRecord)
		}
		return n
	}
	word := func(i int) delivery.Outcome {
		if w[i] == "-" {
			return ""
		}
		return delivery.Outcome(w[i])
	}
	r := record{
		Delivery: delivery.Delivery{
			ID: id, State: stateOf[w[0]], Lane: laneOf[w[1]],
			DueAt: fromMillis(num(2)), ExpiresAt: fromMillis(num(3)), AcceptedAt: fromMillis(num(4)),
			Attempts: int(num(5)), DeliveryCount: num(6), Settled: num(7),
			Releases: int(num(8)), LeaseLosses: int(num(9)), RedriveGeneration: int(num(10)),
			BudgetBase: int(num(11)), Budget: int(num(12)),
			FirstAttemptAt: fromMillis(num(13)), LastAttemptAt: fromMillis(num(14)), EndedAt: fromMillis(num(15)),
			LastStatus: int(num(16)), LastOutcome: word(17),
			EventID: w[20], SubscriberID: w[21],
		},
		Reason: word(18),
	}
	if r.State == "" || r.Lane == "" {
		bad = fmt.Errorf("%s: unknown state or lane: %w", id, errRecord)
	}
	return r, bad
}

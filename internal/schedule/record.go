package schedule

import (
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/fanout/fanout/internal/delivery"
)

// How many words a record has; lua/record.lua writes them.
const (
	shortWords   = 4
	headWords    = 5
	historyWords = 16
)

var errRecord = errors.New("damaged delivery record")

// noHistory is what a delivery's history is, behind its due time, before its first
// attempt.
var noHistory = strings.Fields("0 0 0 0 0 0 0 0 0 0 0 0 - - -")

// The single letters that records use.
var (
	stateOf = map[string]delivery.State{
		"s": delivery.Scheduled, "l": delivery.Leased, "d": delivery.Delivered,
		"x": delivery.Dead, "c": delivery.Cancelled,
	}
	laneOf = map[string]delivery.Lane{
		"f": delivery.Fresh, "r": delivery.Retry, "d": delivery.Redrive,
	}
	letterOfLane = map[delivery.Lane]string{
		delivery.Fresh: "f", delivery.Retry: "r", delivery.Redrive: "d",
	}
	letterOf = map[delivery.State]string{
		delivery.Scheduled: "s", delivery.Delivered: "d", delivery.Dead: "x",
	}
	letterOfBlame = map[delivery.Blame]string{
		delivery.NoBlame: "+", delivery.Endpoint: "e", delivery.Payload: "p", delivery.Us: "u",
	}
)

// record is a delivery and the words of its record that are no part of it.
type record struct {
	delivery.Delivery
	Reason delivery.Outcome
}

// unfold makes the head of the short form, which most deliveries have that wait for
// their first attempt: see lua/record.lua.
func unfold(w []string) []string {
	acc, short := strings.CutPrefix(w[0], "sf")
	accepted, err := strconv.ParseInt(acc, 10, 64)
	seconds, err2 := strconv.ParseInt(w[1], 10, 64)
	if !short || err != nil || err2 != nil {
		return w
	}
	return []string{"sf", acc, strconv.FormatInt(accepted+1000*seconds, 10), "evt_" + w[2], "sub_" + w[3]}
}

// decode reads the record that lua/record.lua encodes: the head alone while it waits
// for its first attempt, else its history too.
func decode(id, text string) (record, error) {
	w := strings.Split(text, " ")
	if len(w) == shortWords {
		w = unfold(w)
	}
	if len(w) == headWords {
		w = append(w, w[1]) // due since it was accepted
		w = append(w, noHistory...)
	}
	if len(w) != headWords+historyWords || len(w[0]) != 2 {
		return record{}, fmt.Errorf("%s: a record of %d words, not %d, %d or %d: %w",
			id, len(w), shortWords, headWords, headWords+historyWords, errRecord)
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
			ID: id, State: stateOf[w[0][:1]], Lane: laneOf[w[0][1:]],
			AcceptedAt: fromMillis(num(1)), ExpiresAt: fromMillis(num(2)), EventID: w[3], SubscriberID: w[4],
			DueAt: fromMillis(num(5)), Attempts: int(num(6)), DeliveryCount: num(7), Settled: num(8),
			Releases: int(num(9)), LeaseLosses: int(num(10)), RedriveGeneration: int(num(11)),
			BudgetBase: int(num(12)), Budget: int(num(13)),
			FirstAttemptAt: fromMillis(num(14)), LastAttemptAt: fromMillis(num(15)), EndedAt: fromMillis(num(16)),
			LastStatus: int(num(17)), LastOutcome: word(18),
		},
		Reason: word(19),
	}
	if r.State == "" || r.Lane == "" {
		bad = fmt.Errorf("%s: unknown state or lane: %w", id, errRecord)
	}
	return r, bad
}

package schedule

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"
)

// ClaimResult says what became of a claim.
type ClaimResult string

// The results of a claim, a release and a discard.
const (
	Claimed   ClaimResult = "claimed"  // it is the cohort's
	Taken     ClaimResult = "taken"    // it is another cohort's
	NotDead   ClaimResult = "not_dead" // it is no dead letter, or no longer
	NoLetter  ClaimResult = "missing"
	Released  ClaimResult = "released"  // it waits in the redrive lane
	Before    ClaimResult = "already"   // it was released before
	Over      ClaimResult = "over"      // it left the cohort: delivered late, or its subscriber deleted
	Discarded ClaimResult = "discarded" // it is gone
)

// Tally counts a cohort's deliveries.
type Tally struct {
	// Claimed are those that it was made of; LetGo those given back unreleased.
	Claimed int64 `json:"claimed"`
	LetGo   int64 `json:"let_go"`
	// Released have entered the lane so far; of them Delivered, Dead and Cancelled have
	// ended, the rest are on their way.
	Released  int64 `json:"released"`
	Delivered int64 `json:"delivered"`
	Dead      int64 `json:"dead"`
	Cancelled int64 `json:"cancelled"`
	// Over left before they were released.
	Over int64 `json:"over"`
}

// Waiting are those that are yet to be released.
func (t Tally) Waiting() int64 { return t.Claimed - t.LetGo - t.Released - t.Over }

// Out are those that were released and have not ended.
func (t Tally) Out() int64 { return t.Released - t.Delivered - t.Dead - t.Cancelled }

// Claim puts dead letters into a cohort, each unless another has it, and returns a
// result for each. Repeating it is safe. Errors: delivery.ErrBadID.
func (e *Engine) Claim(ctx context.Context, cohort string, ids []string) ([]ClaimResult, error) {
	return e.perLetter(ctx, e.scripts.claim, []any{cohort}, ids)
}

// Redrive releases claimed dead letters into the redrive lane, each with a budget of
// attempts and a time within which it must be delivered, from now. Repeating it is
// safe. Errors: delivery.ErrBadID.
func (e *Engine) Redrive(ctx context.Context, cohort string, budget int, within time.Duration, ids []string) ([]ClaimResult, error) {
	return e.perLetter(ctx, e.scripts.redrive, []any{cohort, budget, within.Milliseconds()}, ids)
}

// Discard forgets dead letters, with evidence and payload. One that a cohort has is
// left. Errors: delivery.ErrBadID.
func (e *Engine) Discard(ctx context.Context, ids []string) ([]ClaimResult, error) {
	return e.perLetter(ctx, e.scripts.discard, []any{e.opts.DeliveredRetention.Milliseconds()}, ids)
}

// perLetter runs a script on deliveries of any partitions that returns a word for each.
func (e *Engine) perLetter(ctx context.Context, s script, common []any, ids []string) ([]ClaimResult, error) {
	byPart := map[int][]int{} // indexes of ids
	for i, id := range ids {
		p, err := e.partitionOfDelivery(id)
		if err != nil {
			return nil, err
		}
		byPart[p] = append(byPart[p], i)
	}
	var calls []call
	var whose [][]int
	for p, indexes := range byPart {
		args := append([]any(nil), common...)
		for _, i := range indexes {
			args = append(args, ids[i])
		}
		calls, whose = append(calls, call{s, e.parts[p], args}), append(whose, indexes)
	}
	if len(calls) == 0 {
		return nil, nil
	}
	cmds, err := e.run(ctx, calls)
	if err != nil {
		return nil, err
	}
	out := make([]ClaimResult, len(ids))
	for c, cmd := range cmds {
		words, err := cmd.StringSlice()
		if err == nil && len(words) != len(whose[c]) {
			err = fmt.Errorf("%d words for %d", len(words), len(whose[c]))
		}
		if err != nil {
			return nil, classify(s.name, err)
		}
		for i, word := range words {
			out[whose[c][i]] = ClaimResult(word)
		}
	}
	return out, nil
}

// Unclaim lets go of up to limit of the deliveries that a cohort has not released, and
// says how many; 0 when none is left.
func (e *Engine) Unclaim(ctx context.Context, cohort string, limit int) (int, error) {
	calls := make([]call, len(e.parts))
	for p, prefix := range e.parts {
		calls[p] = call{e.scripts.unclaim, prefix, []any{cohort, limit}}
	}
	cmds, err := e.run(ctx, calls)
	if err != nil {
		return 0, err
	}
	n := 0
	var errs []error
	for _, cmd := range cmds {
		got, err := cmd.Int()
		n += got
		errs = append(errs, classify("unclaim", err))
	}
	return n, errors.Join(errs...)
}

// Tally counts a cohort.
func (e *Engine) Tally(ctx context.Context, cohort string) (Tally, error) {
	cmds := make([]*redis.MapStringStringCmd, len(e.parts))
	err := e.read(ctx, "tally", func(p redis.Pipeliner) {
		for i, prefix := range e.parts {
			cmds[i] = p.HGetAll(ctx, prefix+"tally:"+cohort)
		}
	})
	if err != nil {
		return Tally{}, err
	}
	var t Tally
	fields := map[string]*int64{
		"claimed": &t.Claimed, "let_go": &t.LetGo, "released": &t.Released, "over": &t.Over,
		"delivered": &t.Delivered, "dead": &t.Dead, "cancelled": &t.Cancelled,
	}
	for _, cmd := range cmds {
		for name, value := range cmd.Val() {
			var n int64
			if _, err := fmt.Sscan(value, &n); err != nil || fields[name] == nil {
				return Tally{}, fmt.Errorf("tally of %s: %s is %q", cohort, name, value)
			}
			*fields[name] += n
		}
	}
	return t, nil
}

// NextOfCohort returns up to limit deliveries that a cohort has yet to release, those
// that died first before the others.
func (e *Engine) NextOfCohort(ctx context.Context, cohort string, limit int) ([]string, error) {
	return e.inCohort(ctx, "cohort:"+cohort, limit)
}

// OutOfCohort returns up to limit deliveries that a cohort has released and that have not
// ended, those released first before the others.
func (e *Engine) OutOfCohort(ctx context.Context, cohort string, limit int) ([]string, error) {
	return e.inCohort(ctx, "out:"+cohort, limit)
}

func (e *Engine) inCohort(ctx context.Context, order string, limit int) ([]string, error) {
	places, err := e.readOn(ctx, e.parts, order, up, place{}, limit)
	ids := make([]string, len(places))
	for i, p := range places {
		ids[i] = p.id
	}
	return ids, err
}

// ForgetCohort removes what is left of a cohort that has ended: its tally. Call it when
// nothing of it is waiting or out.
func (e *Engine) ForgetCohort(ctx context.Context, cohort string) error {
	_, err := e.pipe(ctx, func(p redis.Pipeliner) {
		for _, prefix := range e.parts {
			p.Del(ctx, prefix+"tally:"+cohort)
		}
	})
	return err
}

// Pinned returns the payload that a dead letter, or one that is being redriven, keeps
// beside itself, for when the event's own is gone; ErrNotFound if there is none.
func (e *Engine) Pinned(ctx context.Context, subscriberID, eventID string) (Body, error) {
	var cmd *redis.StringCmd
	err := e.read(ctx, "pinned payload", func(p redis.Pipeliner) {
		cmd = p.Get(ctx, e.parts[e.PartitionOf(subscriberID)]+"pin:"+eventID)
	})
	if err != nil {
		return Body{}, err
	}
	b, err := cmd.Bytes()
	if err != nil {
		return Body{}, fmt.Errorf("pinned payload of event %s: %w", eventID, ErrNotFound)
	}
	return decodeBody(b)
}

package httpapi

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/fanout/fanout/internal/access"
	"github.com/fanout/fanout/internal/schedule"
	"github.com/fanout/fanout/internal/subscriber"
)

// bound is the account that the caller is bound to, if he is: a key of the role
// subscriber sees one account, and what belongs to another is not there for it.
func bound(ctx context.Context) (account string, is bool) {
	who := access.From(ctx)
	return who.Account, who.Role == access.Subscriber
}

// ownSubscriber reads a subscriber for the caller. Another account's gives the very
// answer that an unknown id gives.
func (s *server) ownSubscriber(ctx context.Context, id string) (subscriber.Subscriber, error) {
	if !usableID(id, "_") {
		return subscriber.Subscriber{}, subscriberError(schedule.ErrNotFound)
	}
	noteIn(ctx).id("subscriber_id", id)
	sub, err := s.deps.Subscribers.Get(ctx, id)
	if err != nil {
		return subscriber.Subscriber{}, subscriberError(err)
	}
	if account, is := bound(ctx); is && sub.Account != account {
		return subscriber.Subscriber{}, subscriberError(schedule.ErrNotFound)
	}
	return sub, nil
}

// mayKnow says whether the caller may know of what belongs to a subscriber, or did to
// one that is deleted. It reads the subscriber only if that matters.
func (s *server) mayKnow(ctx context.Context, subscriberID string) (bool, error) {
	account, is := bound(ctx)
	if !is {
		return true, nil
	}
	sub, err := s.deps.Subscribers.Get(ctx, subscriberID)
	if errors.Is(err, schedule.ErrNotFound) {
		return s.had(ctx, subscriberID)
	}
	if err != nil {
		return false, fmt.Errorf("find whose it is: %w", err)
	}
	return sub.Account == account, nil
}

// had says whether a subscriber is deleted and was the bound caller's.
func (s *server) had(ctx context.Context, subscriberID string) (bool, error) {
	left, err := s.leftTo(ctx, []string{subscriberID})
	return len(left) > 0, err
}

// leftTo picks those of the ids that are deleted and were the bound caller's.
func (s *server) leftTo(ctx context.Context, ids []string) ([]string, error) {
	account, _ := bound(ctx)
	var left []string
	for chunk := range slices.Chunk(ids, viewChunk) {
		owners, err := s.deps.Subscribers.Owners(ctx, chunk)
		if err != nil {
			return nil, fmt.Errorf("find whose they were: %w", err)
		}
		for i, owner := range owners {
			if owner != "" && owner == account {
				left = append(left, chunk[i])
			}
		}
	}
	return left, nil
}

// ownDelivery reads a delivery for the caller, without its evidence.
func (s *server) ownDelivery(ctx context.Context, id string) (schedule.Evidence, error) {
	d, err := s.findDelivery(ctx, id)
	if err != nil {
		return schedule.Evidence{}, err
	}
	may, err := s.mayKnow(ctx, d.SubscriberID)
	if err == nil && !may {
		err = notFound("delivery")
	}
	if err != nil {
		return schedule.Evidence{}, err
	}
	return d, nil
}

// own picks those of the ids that are of the caller's account or were, in their order.
// The store keeps an account's subscribers in memory, and an event may have 10,000: to
// read each would be that many reads.
func (s *server) own(ctx context.Context, ids []string) ([]string, error) {
	account, is := bound(ctx)
	if !is || len(ids) == 0 {
		return ids, nil
	}
	mine := map[string]bool{}
	for after := ""; ; {
		subs, err := s.deps.Subscribers.List(ctx, subscriber.ListFilter{Account: account}, after, subscriber.MaxList)
		if err != nil {
			return nil, fmt.Errorf("list the account's subscribers: %w", err)
		}
		for _, sub := range subs {
			mine[sub.ID], after = true, sub.ID
		}
		if len(subs) < subscriber.MaxList {
			break
		}
	}
	others := slices.DeleteFunc(slices.Clone(ids), func(id string) bool { return mine[id] })
	left, err := s.leftTo(ctx, others)
	if err != nil {
		return nil, err
	}
	for _, id := range left {
		mine[id] = true
	}
	return slices.DeleteFunc(slices.Clone(ids), func(id string) bool { return !mine[id] }), nil
}

// forAccount is the account that a caller may name in a request: his own if he is
// bound, also where he names none.
func forAccount(ctx context.Context, named string) (account string, ok bool) {
	account, is := bound(ctx)
	switch {
	case !is:
		return named, true
	case named == "" || named == account:
		return account, true
	}
	return "", false
}

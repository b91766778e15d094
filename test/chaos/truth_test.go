//go:build chaos

package chaos

import (
	"encoding/json"
	"slices"
	"sync"
	"time"
)

// truth is what the test knows for certain, since it was told so by a 2xx, and
// what it cannot know.
type truth struct {
	mu     sync.Mutex
	events map[string]*posted
	subs   map[string]*sub // by the name in the path of its URL
}

// posted is one event, over all the posts of it.
type posted struct {
	ID, Type string
	Body     string
	First    time.Time // the first post began
	Last     time.Time // the last one ended
	Posts    int
	// Accepted by a 2xx, which said so many deliveries.
	Accepted   bool
	AcceptedAt time.Time // when the 2xx was here
	Deliveries int
	// Unknown says that a post got no answer, or one that leaves open whether the
	// event was stored.
	Unknown bool
}

// sub is one subscriber: when it may have existed, and when it must have.
type sub struct {
	Name, ID, Secret string
	Types            []string
	MaxAttempts      int
	Asked, Created   time.Time // the create was sent; its 2xx was here
	Ending, Ended    time.Time // the first delete was sent; a 2xx was here
	EndedWhole       bool      // and said that nothing is sent any more
	Paused           bool
	Moves            []move // of its URL
}

// move is a change of the URL: to what path, sent and answered when.
type move struct {
	To          string
	Asked, Done time.Time
}

func newTruth() *truth {
	return &truth{events: map[string]*posted{}, subs: map[string]*sub{}}
}

// with runs f on the truth.
func (t *truth) with(f func()) {
	t.mu.Lock()
	defer t.mu.Unlock()
	f()
}

func (t *truth) secret(name string) string {
	t.mu.Lock()
	defer t.mu.Unlock()
	if s := t.subs[name]; s != nil {
		return s.Secret
	}
	return ""
}

// byID finds a subscriber of ours; nil if its create was never answered.
func (t *truth) byID() map[string]*sub {
	t.mu.Lock()
	defer t.mu.Unlock()
	all := map[string]*sub{}
	for _, s := range t.subs {
		if s.ID != "" {
			all[s.ID] = s
		}
	}
	return all
}

// must says whether an event has to be planned for the subscriber, and may whether
// it can be. A plan is made by one of the posts, nobody knows which.
func (s *sub) must(e *posted) bool {
	return slices.Contains(s.Types, e.Type) && !s.Created.IsZero() && s.Created.Before(e.First) &&
		(s.Ending.IsZero() || s.Ending.After(e.Last))
}

func (s *sub) may(e *posted) bool {
	return slices.Contains(s.Types, e.Type) && s.Asked.Before(e.Last) && (s.Ended.IsZero() || s.Ended.After(e.First))
}

func (t *truth) dump() []byte {
	t.mu.Lock()
	defer t.mu.Unlock()
	b, err := json.MarshalIndent(map[string]any{"events": t.events, "subscribers": t.subs}, "", " ")
	if err != nil {
		return []byte(err.Error())
	}
	return b
}

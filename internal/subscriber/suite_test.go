package subscriber_test

import (
	"testing"

	"github.com/fanout/fanout/internal/subscriber"
	"github.com/fanout/fanout/internal/subscriber/subtest"
)

func TestContractOverMemory(t *testing.T) {
	t.Parallel()
	subtest.Run(t, func(testing.TB) subtest.Rig {
		m := subtest.NewMemory(4)
		return subtest.Rig{
			Backend: m, Now: m.Now,
			Enqueue: func(_ testing.TB, id string, n int) { m.Enqueue(id, n) },
			Lease:   func(_ testing.TB, id string) func() { return m.Lease(id) },
		}
	})
}

// newStore is a store over a Memory, both with nothing in them.
func newStore(t *testing.T) (*subtest.Memory, *subscriber.Store) {
	t.Helper()
	m := subtest.NewMemory(4)
	return m, subscriber.New(m, subtest.AnyURL{}, []string{"standard", "bulk"}, m.Now)
}

// create makes a subscriber with a URL, whatever else the draft says.
func create(t *testing.T, s *subscriber.Store, d subscriber.Draft) subscriber.Subscriber {
	t.Helper()
	d.URL = new("https://example.com/hook")
	sub, err := s.Create(t.Context(), d)
	if err != nil {
		t.Fatal(err)
	}
	return sub
}

package webhook

import "sync"

// memoMost bounds a memo, in texts. One that is full begins anew: that costs what it
// saves, once in so many endpoints, and needs no bookkeeping at each use.
const memoMost = 8 << 10

// memo keeps what was made of a text, since the same endpoints are sent to again and
// again. What it gives is shared: nobody may change it. The zero value is ready, and
// safe for concurrent use.
type memo[V any] struct {
	mu    sync.RWMutex
	known map[string]V
}

// get is what derive makes of the text, now or earlier. Errors are not kept.
func (m *memo[V]) get(text string, derive func(string) (V, error)) (V, error) {
	m.mu.RLock()
	v, ok := m.known[text]
	m.mu.RUnlock()
	if ok {
		return v, nil
	}
	v, err := derive(text)
	if err != nil {
		return v, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.known == nil || len(m.known) >= memoMost {
		m.known = map[string]V{}
	}
	m.known[text] = v
	return v, nil
}

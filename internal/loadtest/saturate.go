package loadtest

import (
	"context"
	"sync"
	"time"
)

const (
	// saturationCallers post at once while capacity is measured, and saturationWindow is
	// how many deliveries may be accepted and not have arrived: twice the slots, so that
	// none waits for work, and no more: a longer queue makes for fuller batches, and so
	// for a rate that is carried only by deliveries that are as late as that queue.
	saturationCallers = 32
	saturationWindow  = 200
	// saturationWarm is left out at its beginning: connections and caps grow in it.
	saturationWarm = 2 * time.Second
)

// saturate measures the capacity: how many deliveries a second are accepted and arrive
// when as much is posted as the service takes. The loop is closed, so that it is what can
// be kept up, not what can be piled up.
func (r *run) saturate(ctx context.Context, to string, span time.Duration) (float64, error) {
	limit, cancel := context.WithTimeout(ctx, saturationWarm+span)
	defer cancel()
	each, before := int64(r.audience(to)), r.taken()
	posted := int64(0)
	var mu sync.Mutex
	claim := func() bool { // room for one event in the window
		mu.Lock()
		defer mu.Unlock()
		if posted-(r.taken()-before) > saturationWindow-each {
			return false
		}
		posted += each
		return true
	}
	var posts sync.WaitGroup
	for range saturationCallers {
		posts.Go(func() {
			for limit.Err() == nil {
				if claim() {
					r.post(context.WithoutCancel(ctx), to, r.now())
				} else if pause(limit, time.Millisecond) != nil {
					return
				}
			}
		})
	}
	defer posts.Wait()
	if err := pause(limit, saturationWarm); err != nil {
		return 0, err
	}
	from, begin := r.taken(), r.now()
	<-limit.Done()
	perSecond := float64(r.taken()-from) / (r.now() - begin).Seconds()
	if ctx.Err() != nil {
		return 0, context.Cause(ctx)
	}
	_, err := r.accepted()
	return perSecond, err
}

// taken is how many deliveries all endpoints have answered 2xx.
func (r *run) taken() (n int64) {
	for _, g := range r.groups {
		n += g.taken.Load()
	}
	return n
}

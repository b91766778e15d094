package console

import (
	"net"
	"net/http"
	"sync"
	"time"

	"golang.org/x/time/rate"
)

// How often one address may try to sign in: as often as a person mistypes, and far less
// than it takes to guess. Each that succeeds leaves a session in Redis, so they count too.
const (
	attemptEvery = 6 * time.Second
	attemptBurst = 10
	// maxAddresses bounds what is remembered. One that is forgotten begins anew.
	maxAddresses = 4096
)

// attempts counts sign-ins by address.
type attempts struct {
	mu sync.Mutex
	by map[string]*rate.Limiter
}

// take says how long the request has to wait; 0 lets it through. The address is that of
// the connection: what a header says of it can be made up. Who come by one proxy share.
func (a *attempts) take(r *http.Request, now time.Time) time.Duration {
	host, _, err := net.SplitHostPort(r.RemoteAddr)
	if err != nil {
		host = r.RemoteAddr
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.by == nil {
		a.by = make(map[string]*rate.Limiter)
	}
	l := a.by[host]
	if l == nil {
		a.shed(now)
		l = rate.NewLimiter(rate.Every(attemptEvery), attemptBurst)
		a.by[host] = l
	}
	if l.AllowN(now, 1) {
		return 0
	}
	return max(time.Second, time.Duration((1-l.TokensAt(now))*float64(attemptEvery)))
}

// shed forgets addresses that have been quiet for long, and if there are none, any.
func (a *attempts) shed(now time.Time) {
	if len(a.by) < maxAddresses {
		return
	}
	for host, l := range a.by {
		if l.TokensAt(now) >= attemptBurst {
			delete(a.by, host)
		}
	}
	for host := range a.by {
		if len(a.by) < maxAddresses {
			break
		}
		delete(a.by, host)
	}
}

//go:build chaos

package chaos

import (
	"context"
	"encoding/base64"
	"fmt"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
	"time"
)

// The policies: short, so that a round sees whole lives.
var policies = map[string]struct {
	types, policy string
	attempts      int
}{
	"healthy":  {`"fast","slow"`, `{"attempt_timeout":"3s","max_attempts":10,"backoff_base":"50ms","backoff_cap":"500ms"}`, 10},
	"extra":    {`"fast"`, `{"attempt_timeout":"3s","max_attempts":10,"backoff_base":"50ms","backoff_cap":"500ms"}`, 10},
	"flaky":    {`"fast"`, `{"attempt_timeout":"2s","max_attempts":8,"backoff_base":"50ms","backoff_cap":"400ms"}`, 8},
	"slow":     {`"slow"`, `{"attempt_timeout":"1s","max_attempts":6,"backoff_base":"50ms","backoff_cap":"200ms"}`, 6},
	"hanging":  {`"slow"`, `{"attempt_timeout":"300ms","max_attempts":3,"breaker_failures":2,"backoff_base":"50ms","backoff_cap":"200ms"}`, 3},
	"failing":  {`"slow"`, `{"attempt_timeout":"1s","max_attempts":4,"breaker_failures":3,"backoff_base":"50ms","backoff_cap":"200ms"}`, 4},
	"refusing": {`"slow"`, `{"attempt_timeout":"1s","max_attempts":4,"breaker_failures":3,"backoff_base":"50ms","backoff_cap":"200ms"}`, 4},
}

// populate registers the standing endpoints.
func (w *world) populate() {
	w.Helper()
	for _, name := range []string{
		"healthy-0", "healthy-1", "healthy-2", "flaky-0", "flaky-1", "slow-0", "hanging-0", "failing-0", "refusing-0",
	} {
		w.register(name)
	}
	w.mustGoOn()
}

// register creates a subscriber, trying until a 2xx says that it is there. Tries
// that were not answered may have made others like it.
func (w *world) register(name string) *sub {
	kind, _, _ := strings.Cut(name, "-")
	p := policies[kind]
	s := w.newSub(name, p.types, p.attempts)
	return w.create(s, p.policy)
}

func (w *world) newSub(name, types string, attempts int) *sub {
	secret := make([]byte, 32)
	copy(secret, "secret of "+name)
	s := &sub{
		Name: name, Secret: "whsec_" + base64.StdEncoding.EncodeToString(secret), MaxAttempts: attempts,
		Types: strings.Split(strings.ReplaceAll(types, `"`, ""), ","), Asked: time.Now(),
	}
	w.truth.with(func() { w.truth.subs[name] = s })
	return s
}

func (w *world) create(s *sub, policy string) *sub {
	body := fmt.Sprintf(`{"account":"acme","name":%q,"url":%q,"filter":{"types":["%s"]},"policy":%s,"secret":%q}`,
		s.Name, w.receivers.URL+"/"+s.Name+"/0", strings.Join(s.Types, `","`), policy, s.Secret)
	a := w.insist(http.MethodPost, "/v1/subscribers", body, http.StatusCreated)
	w.truth.with(func() { s.ID, s.Created = a.ID, time.Now() })
	return s
}

// insist repeats a request, at either API, until it has one of the statuses. It
// goes on beyond the faults: what it asked for is then certain.
func (w *world) insist(method, path, body string, want ...int) answer {
	var a answer
	done := until(60*time.Second, func() bool {
		for _, c := range w.apis() {
			ctx, cancel := context.WithTimeout(w.ctx, 8*time.Second)
			a = w.call(ctx, c, method, path, body)
			cancel()
			if slices.Contains(want, a.Status) {
				return true
			}
			if a.Err == nil && a.Status/100 == 4 {
				w.wrong("%s answered %d to %s %s: %s", c.name, a.Status, method, path, a.Body)
				return true
			}
		}
		return false
	})
	if !done {
		w.wrong("%s %s was never answered: the last was %d %s %v", method, path, a.Status, a.Body, a.Err)
	}
	return a
}

// administer changes subscribers until ctx ends: it moves URLs, pauses, resumes,
// creates and deletes. One change at a time, each seen through.
func (w *world) administer(ctx context.Context, rng *rand.Rand) {
	gen, extras := 0, []*sub{}
	for {
		pause(ctx, time.Duration(200+rng.IntN(800))*time.Millisecond)
		if ctx.Err() != nil {
			return
		}
		dice, pick := rng.IntN(100), rng.IntN(1000)
		switch {
		case dice < 40:
			gen++
			w.move(w.standing(pick), gen)
		case dice < 65:
			s := w.standing(pick)
			w.setPaused(s, !s.Paused)
		case dice < 85 || len(extras) == 0:
			gen++
			extras = append(extras, w.register(fmt.Sprint("extra-", gen)))
		default:
			i := pick % len(extras)
			w.remove(extras[i], pick%2 == 0)
			extras = append(extras[:i], extras[i+1:]...)
		}
	}
}

// standing is one of those that are never deleted.
func (w *world) standing(pick int) *sub {
	names := []string{"healthy-0", "healthy-1", "flaky-0", "slow-0"}
	w.truth.mu.Lock()
	defer w.truth.mu.Unlock()
	return w.truth.subs[names[pick%len(names)]]
}

func (w *world) move(s *sub, gen int) {
	to := fmt.Sprintf("/%s/%d", s.Name, gen)
	m := move{To: to, Asked: time.Now()}
	w.insist(http.MethodPatch, "/v1/subscribers/"+s.ID, fmt.Sprintf(`{"url":%q}`, w.receivers.URL+to), http.StatusOK)
	m.Done = time.Now()
	w.truth.with(func() { s.Moves = append(s.Moves, m) })
	w.notef("%s moved to %s", s.Name, to)
}

func (w *world) setPaused(s *sub, paused bool) {
	verb := map[bool]string{true: "pause", false: "resume"}[paused]
	w.insist(http.MethodPost, "/v1/subscribers/"+s.ID+"/"+verb, "", http.StatusOK)
	w.truth.with(func() { s.Paused = paused })
	w.notef("%s: %s", s.Name, verb)
}

// remove deletes one subscriber. With wait the answer says that nothing is sent to
// it any more.
func (w *world) remove(s *sub, wait bool) {
	path := "/v1/subscribers/" + s.ID
	if !wait {
		path += "?wait=0"
	}
	w.truth.with(func() { s.Ending = time.Now() })
	a := w.insist(http.MethodDelete, path, "", http.StatusOK, http.StatusAccepted)
	w.truth.with(func() { s.Ended, s.EndedWhole = time.Now(), a.Status == http.StatusOK })
	w.notef("%s deleted: %d", s.Name, a.Status)
}

// probeAll has every breaker that is open probe at once, for its endpoint is back. A
// resume would end a pause as well, so those that are paused have to wait for theirs.
func (w *world) probeAll() {
	for _, s := range w.truth.byID() {
		if !s.Paused && s.Ending.IsZero() {
			w.insist(http.MethodPost, "/v1/subscribers/"+s.ID+"/resume", "", http.StatusOK)
		}
	}
}

// resumeAll ends every pause.
func (w *world) resumeAll() {
	for _, s := range w.truth.byID() {
		if s.Paused {
			w.setPaused(s, false)
		}
	}
}

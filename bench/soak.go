package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync/atomic"
	"time"
)

// soakOptions are the flags of the soak.
type soakOptions struct {
	options
	length time.Duration
	every  time.Duration // between two looks
	settle time.Duration // what is before is not compared
	rate   float64       // events a second; 0 is a third of what a short look reaches
}

// soakMain has the product run for long under a steady load, some of whose endpoints
// misbehave, and fails if anything grows that should not.
func soakMain(args []string) error {
	var o soakOptions
	fs := flag.NewFlagSet("soak", flag.ExitOnError)
	fs.DurationVar(&o.length, "for", 10*time.Minute, "how long; in less than some minutes connections that come and go look like growth")
	fs.DurationVar(&o.every, "every", 5*time.Second, "between two looks at the processes; keys are counted in every twelfth")
	fs.DurationVar(&o.settle, "settle", 2*time.Minute, "what is compared with the end begins here")
	fs.Float64Var(&o.rate, "rate", 0, "events a second, ten deliveries each; default a third of what is reached just before")
	fs.IntVar(&o.slots, "slots", 128, "attempts at once, of the dispatcher")
	fs.IntVar(&o.events, "events", 2000, "events of the look at what can be reached")
	fs.StringVar(&o.logs, "log-level", "info", "of the product's binaries; their log goes to a file")
	fs.StringVar(&o.root, "root", "..", "the product's folder")
	fs.StringVar(&o.dir, "dir", "", "where Redis keeps its files: a disk, not memory; default a new temporary folder")
	fs.StringVar(&o.out, "out", "results", "folder of soak.json and the charts")
	_ = fs.Parse(args) // it exits by itself
	if o.settle+3*o.window() > o.length || o.every <= 0 {
		return errors.New("-for must be longer than -settle and three times a tenth of itself")
	}
	ctx, cancel := untilStopped()
	defer cancel()
	b, err := newBench(ctx, o.options)
	if err != nil {
		return err
	}
	defer b.close()
	run := soak{b: b, o: o}
	if err := run.play(ctx); err != nil {
		return err
	}
	return run.report(os.Stdout)
}

// window is how much of the beginning and of the end is compared.
func (o soakOptions) window() time.Duration { return o.length / 10 }

// soak is a run and what was seen.
type soak struct {
	b     *bench
	o     soakOptions
	s     *stack
	looks []look
	keys  []census
	// repeated are posts that were sent a second time, as a producer does in doubt;
	// refused got no 202 then either. doubt is why, of the last one.
	repeated, refused atomic.Int64
	doubt             atomic.Value
	rate              float64
	left              int64 // deliveries pending after the end
}

func (k *soak) play(ctx context.Context) (err error) {
	if k.s, err = k.b.startStack(ctx, "everysec"); err != nil {
		return err
	}
	defer k.s.stop()
	// All connections of the producers are made before the clock starts.
	k.s.http.Transport = &http.Transport{MaxIdleConnsPerHost: posters, MaxConnsPerHost: posters}
	if k.s.apiPort, err = k.s.startObserved(ctx); err != nil {
		return err
	}
	if err := k.s.register(ctx, endpoints, "bench.ten"); err != nil {
		return err
	}
	k.b.board.reset()
	if err := k.s.endToEnd(ctx, k.b.o.events); err != nil {
		return err
	}
	k.rate = k.o.rate
	if k.rate == 0 {
		k.rate = float64(k.b.o.events) / k.b.board.seconds() / 3
	}
	if err := k.fillCaches(ctx); err != nil {
		return err
	}
	bad := httptest.NewServer(misbehave())
	defer bad.Close()
	if err := k.registerBad(ctx, bad.URL); err != nil {
		return err
	}
	k.b.say("%.0f events/s of ten deliveries, and %d a second for endpoints that misbehave, for %s", k.rate, badRate, k.o.length)
	loaded, stop := context.WithTimeout(ctx, k.o.length)
	defer stop()
	done := make(chan struct{}, 2)
	go func() { k.feed(loaded, "bench.ten", k.rate); done <- struct{}{} }()
	go func() { k.feed(loaded, "soak.bad", badRate); done <- struct{}{} }()
	err = k.watch(loaded)
	stop()
	<-done
	<-done
	if err != nil || ctx.Err() != nil {
		return errors.Join(err, context.Cause(ctx))
	}
	k.left, err = k.s.pending(ctx)
	return err
}

// fillCaches sends so many events that the dispatcher's cache of payloads, which is
// bounded by bytes, is full at once. At the rate of the soak it would be after a
// quarter of an hour, and until then look like a leak.
func (k *soak) fillCaches(ctx context.Context) error {
	const cache, entry = 64 << 20, bodySize + 100 // bytes; what the cache adds, at the least
	if err := k.s.register(ctx, 1, "soak.one"); err != nil {
		return err
	}
	k.b.board.reset()
	const n = cache * 11 / 10 / entry
	k.b.say("%d events first, to fill the dispatcher's cache of payloads", n)
	var next atomic.Int64
	tag := time.Now().UnixNano()
	err := inParallel(posters, func() error {
		for i := next.Add(1); i <= n; i = next.Add(1) {
			if err := k.s.call(ctx, "/v1/events", event("soak.one", fmt.Sprintf("evt_%019d%07d", tag, i)), http.StatusAccepted); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	if err := k.s.arrive(ctx, n); err != nil {
		return err
	}
	return k.s.settled(ctx)
}

// badRate is how many events a second go to the endpoints that misbehave: they are
// there for their connections, retries, breakers and dead letters, and not to be a load.
const badRate = 4

// misbehaviours are the endpoints of the bad, by path, and why each is there.
var misbehaviours = map[string]string{
	"failing": "always 500: its breaker opens, its deliveries grow old and die",
	"flaky":   "500 one time in four: retries",
	"slow":    "answers after 1.5 s: holds slots",
	"hanging": "never answers: attempts end at their timeout",
	"closing": "breaks the connection: a new one each time",
}

func misbehave() http.Handler {
	var n atomic.Int64
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		switch strings.Trim(r.URL.Path, "/") {
		case "failing":
			w.WriteHeader(http.StatusInternalServerError)
		case "flaky":
			if n.Add(1)%4 == 0 {
				w.WriteHeader(http.StatusInternalServerError)
			}
		case "slow":
			_ = rest(r.Context(), 1500*time.Millisecond)
		case "hanging":
			<-r.Context().Done()
		case "closing":
			panic(http.ErrAbortHandler)
		}
	})
}

// registerBad gives each a policy under which its deliveries end within half a
// minute, so that what waits for it does not grow for a day.
func (k *soak) registerBad(ctx context.Context, base string) error {
	for path := range misbehaviours {
		in, err := json.Marshal(map[string]any{
			"url": base + "/" + path, "filter": map[string]any{"types": []string{"soak.bad"}},
			"policy": map[string]any{
				"max_age": "30s", "attempt_timeout": "3s", "max_attempts": 6, "backoff_base": "500ms", "backoff_cap": "5s",
			},
		})
		if err != nil {
			return err
		}
		if err := k.s.call(ctx, "/v1/subscribers", in, http.StatusCreated); err != nil {
			return err
		}
	}
	return nil
}

// feed posts at a steady rate until ctx ends, in batches of what has fallen due, with
// at most so many posts out.
func (k *soak) feed(ctx context.Context, kind string, perSecond float64) {
	start, due := time.Now(), 0
	out := make(chan struct{}, posters)
	for rest(ctx, 5*time.Millisecond) == nil {
		for ; float64(due) < time.Since(start).Seconds()*perSecond; due++ {
			out <- struct{}{}
			id := fmt.Sprintf("evt_%019d%07d", start.UnixNano(), due)
			go func() {
				defer func() { <-out }()
				ctx := context.WithoutCancel(ctx)
				err := k.s.call(ctx, "/v1/events", event(kind, id), http.StatusAccepted)
				if err == nil {
					return
				}
				k.doubt.Store(err.Error())
				k.repeated.Add(1)
				if rest(ctx, time.Second) == nil && k.s.call(ctx, "/v1/events", event(kind, id), http.StatusAccepted) != nil {
					k.refused.Add(1)
				}
			}()
		}
	}
	for range posters { // those that are out
		out <- struct{}{}
	}
}

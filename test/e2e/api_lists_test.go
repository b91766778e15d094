package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/fanout/fanout/internal/schedule"
	"github.com/fanout/fanout/internal/subscriber"
	"github.com/fanout/fanout/internal/subscriber/subtest"
)

// thousand things of one instant are what a list's cursor must tell apart.
const thousand = 1000

// listed reads a list to its end over HTTP and gives the ids, in order. between is
// called after each page.
func (s *service) listed(path string, limit int, between func(page int)) []string {
	s.Helper()
	var ids []string
	for cursor, page := "", 0; ; page++ {
		var list struct {
			Data []struct {
				ID       string
				Delivery struct{ ID string }
			}
			Next string `json:"next_cursor"`
		}
		s.call("GET", fmt.Sprintf("%slimit=%d%s", path, limit, cursor), "", http.StatusOK, &list)
		if len(list.Data) > limit || page > 10_000 {
			s.Fatalf("%s: a page of %d, limit %d, page %d", path, len(list.Data), limit, page)
		}
		for _, item := range list.Data {
			ids = append(ids, item.ID+item.Delivery.ID)
		}
		if list.Next == "" {
			return ids
		}
		cursor = "&cursor=" + url.QueryEscape(list.Next)
		between(page)
	}
}

// complete fails unless all of stay are listed, and nothing twice.
func (s *service) complete(path string, got, stay []string) {
	s.Helper()
	times := map[string]int{}
	for _, id := range got {
		if times[id]++; times[id] == 2 {
			s.Errorf("%s: %s is listed twice", path, id)
		}
	}
	missing := 0
	for _, id := range stay {
		if times[id] == 0 {
			missing++
		}
	}
	if missing > 0 {
		s.Errorf("%s: %d of %d that were there all the while are not listed", path, missing, len(stay))
	}
}

// frozen is an engine of the test's own over the service's Redis, whose clock stands
// still: what it makes has one timestamp.
func (s *service) frozen() *schedule.Engine {
	s.Helper()
	var rdb redis.UniversalClient
	if s.cluster != nil {
		rdb = s.cluster.Client()
	} else {
		rdb = s.one.Client()
	}
	e, err := schedule.Open(s.Context(), rdb, schedule.Options{Partitions: s.partitions, TestClock: true})
	s.ok(err)
	now, err := e.Now(s.Context())
	s.ok(err)
	s.ok(e.FreezeTestClock(s.Context(), now))
	return e
}

// plant makes an event with a delivery for each subscriber, past the API.
func plant(ctx context.Context, e *schedule.Engine, event string, subs ...string) error {
	body := fmt.Appendf(nil, `{"event_id":%q}`, event)
	var targets []schedule.Target
	for _, sub := range subs {
		targets = append(targets, schedule.Target{SubscriberID: sub, MaxAge: 24 * time.Hour})
	}
	a, err := e.Accept(ctx, schedule.NewEvent{ID: event, BodyHash: "h", Body: body, Targets: targets})
	for i := 0; i < len(targets) && err == nil; i++ {
		p := e.PartitionOf(subs[i])
		err = e.Enqueue(ctx, event, a.At, e.ExpandBy(a.At), p, targets[i:i+1])
	}
	for i := 0; i < len(targets) && err == nil; i++ {
		_, err = e.Strike(ctx, event, e.PartitionOf(subs[i]))
	}
	return err
}

// inParallel does n things, several at a time.
func (s *service) inParallel(n int, do func(i int) error) {
	s.Helper()
	errs := make(chan error, n)
	var wg sync.WaitGroup
	for w := range 8 {
		wg.Go(func() {
			for i := w; i < n; i += 8 {
				errs <- do(i)
			}
		})
	}
	wg.Wait()
	for range n {
		s.ok(<-errs)
	}
}

// A thousand pending deliveries and a thousand dead letters of one millisecond are
// listed completely and once, in pages of 200 and of 7, whatever is made, cancelled and
// retried meanwhile.
func TestThousandDeliveriesOfOneMillisecond(t *testing.T) {
	t.Parallel()
	s := start(t, func(c *setup) { c.workers = 0 })
	holds := s.register(`{"url":"http://127.0.0.1:9/","paused":true,"filter":{"types":["none"]}}`).ID
	full := s.register(`{"url":"http://127.0.0.1:9/","paused":true,"filter":{"types":["none"]},"policy":{"max_held":1}}`).ID
	e := s.frozen()
	s.ok(plant(t.Context(), e, "instant-first", full)) // its place is taken
	s.inParallel(thousand, func(i int) error { return plant(t.Context(), e, fmt.Sprint("instant-", i), holds, full) })

	pending, dead := "/v1/deliveries?subscriber_id="+holds+"&", "/v1/deliveries?state=dead&subscriber_id="+full+"&"
	all := s.listed(pending, 200, func(int) {})
	letters := s.listed(dead, 200, func(int) {})
	s.complete(pending, all, all)
	s.complete(dead, letters, letters)
	if len(all) != thousand || len(letters) != thousand {
		t.Fatalf("%d pending and %d dead are listed, want %d of each", len(all), len(letters), thousand)
	}
	// Under load the service itself expands some of the events, by the real clock.
	instants, most := map[string]int{}, 0
	var page struct{ Data []map[string]json.RawMessage }
	s.call("GET", dead+"limit=200", "", http.StatusOK, &page)
	for _, d := range page.Data {
		at := string(d["ended_at"]) + string(d["expires_at"])
		instants[at]++
		most = max(most, instants[at])
	}
	if most < 100 {
		t.Fatalf("of 200 dead letters %d are of one instant: this tests nothing", most)
	}

	var stay, leave []string
	for i, id := range all {
		if i%4 == 3 {
			leave = append(leave, id)
		} else {
			stay = append(stay, id)
		}
	}
	news := 0
	change := func(int) {
		news++
		s.ok(plant(t.Context(), e, fmt.Sprint("new-", news), holds, full))
		s.call("POST", "/v1/deliveries/"+stay[news%len(stay)]+"/retry", "", http.StatusOK, nil)
		if len(leave) > 0 {
			s.call("POST", "/v1/deliveries/"+leave[0]+"/cancel", `{"reason":"to see"}`, http.StatusOK, nil)
			leave = leave[1:]
		}
	}
	began := time.Now()
	for path, want := range map[string][]string{
		pending: stay, "/v1/deliveries?state=scheduled&subscriber_id=" + holds + "&": stay,
		dead: letters, "/v1/dead-letters?subscriber_id=" + full + "&": letters, "/v1/dead-letters?": letters,
	} {
		s.complete(path, s.listed(path, 7, change), want)
	}
	t.Logf("changes=%d took_ms=%d", news, time.Since(began).Milliseconds())
}

// A thousand subscribers that were made in one millisecond, likewise, while others
// come and go.
func TestThousandSubscribersOfOneMillisecond(t *testing.T) {
	t.Parallel()
	s := start(t, func(c *setup) { c.workers = 0 })
	now, err := s.engine.Now(t.Context())
	s.ok(err)
	store := subscriber.New(s.engine, subtest.AnyURL{}, nil, func(context.Context) (time.Time, error) { return now, nil })
	add := func() (string, error) {
		sub, err := store.Create(s.Context(), subscriber.Draft{URL: new("https://a.example/")})
		return sub.ID, err
	}
	ids := make([]string, thousand)
	s.inParallel(thousand, func(i int) (err error) { ids[i], err = add(); return err })
	if first, last := slices.Min(ids), slices.Max(ids); first[:len("sub_")+10] != last[:len("sub_")+10] {
		t.Fatalf("%s and %s are of two milliseconds", first, last)
	}
	const path = "/v1/subscribers?"
	if got := s.listed(path, 200, func(int) {}); !slices.Equal(got, slices.Sorted(slices.Values(ids))) {
		t.Errorf("%d are listed, or not in order", len(got))
	}
	leave, stay := ids[:200], ids[200:]
	s.complete(path, s.listed(path, 7, func(page int) {
		_, err := add()
		s.ok(err)
		if page < len(leave) {
			if status, b := s.do("DELETE", "/v1/subscribers/"+leave[page]+"?wait=0", ""); status > http.StatusAccepted {
				t.Fatalf("delete: %d %s", status, b)
			}
		}
	}), stay)
}

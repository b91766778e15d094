package access

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"strconv"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/redis/go-redis/v9"

	"github.com/fanout/fanout/test/redistest"
)

func TestEntryIsReadAsItWasWritten(t *testing.T) {
	each(t, Options{}, func(w *world) {
		before := time.Now().Add(-time.Minute)
		want := Entry{
			Actor:  Identity{KeyID: "key_1", Name: "é", Role: Subscriber, Account: "acme"},
			Action: "pauseSubscriber", Target: "sub_1", Account: "acme", Reason: "on call", RequestID: "r1",
			Before: json.RawMessage(`{ "paused": false, "x": "<&>" }`), After: json.RawMessage(`{"paused":true}`),
		}
		w.ok(w.Audit.Append(w.ctx, want))
		w.ok(w.Audit.Append(w.ctx, Entry{}))
		got, next, err := w.Audit.List(w.ctx, Filter{}, "", 10)
		w.ok(err)
		if len(got) != 2 || next != "" {
			w.Fatalf("%d entries, next %q", len(got), next)
		}
		if at := got[1].At; at.Before(before) || at.After(time.Now().Add(time.Minute)) {
			w.Errorf("written at %v", at)
		}
		if got[0].At.Before(got[1].At) || got[0].ID == got[1].ID || !strings.HasPrefix(got[0].ID, "aud_") {
			w.Errorf("%s, then %s: not newest first", got[0].ID, got[1].ID)
		}
		got[1].ID, got[1].At, got[0].ID, got[0].At = "", time.Time{}, "", time.Time{}
		if !reflect.DeepEqual(got[1], want) || !reflect.DeepEqual(got[0], Entry{}) {
			w.Errorf("read %+v", got)
		}
	})
}

func TestEntryIsWrittenThoughItsClientLeft(t *testing.T) {
	each(t, Options{}, func(w *world) {
		ctx, cancel := context.WithCancel(w.ctx)
		cancel()
		w.ok(w.Audit.Append(ctx, Entry{Action: "a"}))
		if got, _, err := w.Audit.List(w.ctx, Filter{}, "", 10); err != nil || len(got) != 1 {
			w.Errorf("%v, %v; want the entry", got, err)
		}
	})
}

func TestEvidenceAndTextAreBounded(t *testing.T) {
	t.Parallel()
	exact := json.RawMessage(`"` + strings.Repeat("x", maxEvidence-2) + `"`)
	for name, c := range map[string]struct{ raw, want string }{
		"none":      {"", ""},
		"at bound":  {string(exact), string(exact)},
		"too large": {string(exact) + " ", `{"omitted":"too large","bytes":16385}`},
		"no JSON":   {`{"a":`, `{"omitted":"not JSON","bytes":5}`},
		"two":       {`{} {}`, `{"omitted":"not JSON","bytes":5}`},
	} {
		if got := evidence(json.RawMessage(c.raw)); got != c.want {
			t.Errorf("%s: %.100s", name, got)
		}
	}
	for _, text := range []string{"", "a", strings.Repeat("é", 200), strings.Repeat("世", 1000), "x" + strings.Repeat("😀", 300), "\xff\xfe" + strings.Repeat("a", 900)} {
		got := clip(text)
		if len(got) > maxText || !utf8.ValidString(got) || (len(text) <= maxText && utf8.ValidString(text) && got != text) {
			t.Errorf("%.20q… becomes %d bytes, %.20q…", text, len(got), got)
		}
	}
}

func TestFiltersTakeWhatTheySay(t *testing.T) {
	each(t, Options{}, func(w *world) {
		for i := range 40 {
			w.ok(w.Audit.Append(w.ctx, Entry{
				Actor:  Identity{KeyID: fmt.Sprintf("key_%d", i%2)},
				Action: fmt.Sprintf("action%d", i%4), Target: fmt.Sprintf("sub_%d", i%5), Account: fmt.Sprintf("acc%d", i%8),
				RequestID: strconv.Itoa(i),
			}))
		}
		for name, c := range map[string]struct {
			f    Filter
			want int
		}{
			"all": {Filter{}, 40}, "action": {Filter{Action: "action1"}, 10}, "target": {Filter{Target: "sub_3"}, 8},
			"key": {Filter{KeyID: "key_1"}, 20}, "account": {Filter{Account: "acc7"}, 5},
			"two":     {Filter{Action: "action1", Target: "sub_1"}, 2},
			"none":    {Filter{Action: "action1", KeyID: "key_0"}, 0},
			"a part":  {Filter{Action: "action"}, 0},
			"a field": {Filter{Account: "key_1"}, 0},
		} {
			got, next, err := w.Audit.List(w.ctx, c.f, "", 100)
			if err != nil || next != "" || len(got) != c.want {
				w.Errorf("%s: %d entries, next %q, %v; want %d", name, len(got), next, err, c.want)
			}
		}
	})
}

// Entries of one ms, a page of 7, and a log that grows at its head and is cut at its
// tail meanwhile: each entry that was there from first to last is seen once, in order.
func TestPagesAreCompleteWhileTheLogChanges(t *testing.T) {
	each(t, Options{}, func(w *world) {
		const n = 200
		firstMs := w.clk.now().UnixMilli()
		// Written with ids that leave no doubt about their ms.
		for i := range n {
			e := Entry{RequestID: strconv.Itoa(i), Action: "old"}
			w.ok(w.rdb.XAdd(w.ctx, &redis.XAddArgs{Stream: redisAudit, ID: fmt.Sprintf("%d-%d", firstMs+int64(i/150), i), Values: e.values()}).Err())
		}
		var seen []int
		for cursor, pages := "", 0; ; pages++ {
			got, next, err := w.Audit.List(w.ctx, Filter{}, cursor, 7)
			w.ok(err)
			for _, e := range got {
				i, err := strconv.Atoi(e.RequestID)
				w.ok(err)
				if e.Action != "old" && pages > 0 {
					w.Fatalf("an entry that came later, on page %d", pages)
				}
				seen = append(seen, i)
			}
			if next == "" {
				break
			}
			if len(got) != 7 {
				w.Fatalf("a page of %d in the middle", len(got))
			}
			cursor = next
			w.ok(w.Audit.Append(w.ctx, Entry{Action: "new", RequestID: "-1"}))
			length, err := w.rdb.XLen(w.ctx, redisAudit).Result()
			w.ok(err)
			w.ok(w.rdb.XTrimMaxLen(w.ctx, redisAudit, max(length-5, 0)).Err()) // its oldest five
		}
		for i := range seen {
			if seen[i] != n-1-i {
				w.Fatalf("entry %d of the list is number %d, want %d", i, seen[i], n-1-i)
			}
		}
		if len(seen) < n/3 {
			w.Errorf("only %d were seen", len(seen))
		}
	})
}

// A filter that takes little looks at a bounded number at once, and says where to go on.
func TestScanHasABudget(t *testing.T) {
	each(t, Options{}, func(w *world) {
		const n = scanBudget + 150
		_, err := w.rdb.Pipelined(w.ctx, func(p redis.Pipeliner) error {
			for i := range n {
				e := Entry{Action: "common", RequestID: strconv.Itoa(i)}
				if i == 100 || i == 101 {
					e.Action = "rare"
				}
				p.XAdd(w.ctx, &redis.XAddArgs{Stream: redisAudit, Values: e.values()})
			}
			return nil
		})
		w.ok(err)
		rare := Filter{Action: "rare"}
		got, next, err := w.Audit.List(w.ctx, rare, "", 1)
		w.ok(err)
		if len(got) != 0 || next == "" {
			w.Fatalf("%d entries, next %q; want none and a next", len(got), next)
		}
		got, next, err = w.Audit.List(w.ctx, rare, next, 1)
		w.ok(err)
		if len(got) != 1 || next != got[0].ID || got[0].RequestID != "101" {
			w.Fatalf("%v, next %q; want one, and its id as next", got, next)
		}
		last, next, err := w.Audit.List(w.ctx, rare, next, 1)
		w.ok(err)
		if len(last) != 1 || next != "" || last[0].RequestID != "100" {
			w.Fatalf("%v, next %q; want the other and the end", last, next)
		}
		if end, next, err := w.Audit.List(w.ctx, rare, last[0].ID, 1); err != nil || len(end) != 0 || next != "" {
			w.Errorf("past the end: %v, %q, %v", end, next, err)
		}
	})
}

func TestOldEntriesAreDropped(t *testing.T) {
	each(t, Options{}, func(w *world) {
		now := w.clk.now()
		for i := range 500 { // enough for Redis to have whole blocks to cut
			e := Entry{Action: "old"}
			w.ok(w.rdb.XAdd(w.ctx, &redis.XAddArgs{
				Stream: redisAudit, ID: fmt.Sprintf("%d-%d", now.Add(-auditRetention-time.Hour).UnixMilli(), i), Values: e.values(),
			}).Err())
		}
		w.ok(w.Audit.Append(w.ctx, Entry{Action: "new"}))
		n, err := w.rdb.XLen(w.ctx, redisAudit).Result()
		w.ok(err)
		if n > 100 {
			w.Errorf("%d entries left, want at most a block of old ones", n)
		}
		if got, _, err := w.Audit.List(w.ctx, Filter{Action: "new"}, "", 10); err != nil || len(got) != 1 {
			w.Errorf("the new one: %v, %v", got, err)
		}
	})
}

func TestOtherCursorsAreRefused(t *testing.T) {
	t.Parallel()
	w := newWorld(t, redistest.Client(t, redistest.Mini(t).Addr()), Options{})
	for _, cursor := range []string{"x", "aud_", "aud_+", "aud_-", "1-1", "aud_1", "aud_1-", "aud_1-1 ", "aud_1-1\n", "aud_(1-1", "aud_99999999999999999999-1", "key_1-1"} {
		if _, _, err := w.Audit.List(w.ctx, Filter{}, cursor, 1); !errors.Is(err, ErrCursor) {
			t.Errorf("%q: %v, want ErrCursor", cursor, err)
		}
	}
	for _, limit := range []int{0, MaxList + 1} {
		if _, _, err := w.Audit.List(w.ctx, Filter{}, "", limit); err == nil {
			t.Errorf("a list of %d", limit)
		}
	}
}

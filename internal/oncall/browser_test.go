package oncall

import (
	"context"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
	"time"

	"github.com/fanout/fanout/internal/delivery"
	"github.com/fanout/fanout/internal/schedule"
	"github.com/fanout/fanout/test/browsertest"
)

// TestBrowser opens the page in a real browser: it loads, follows the source,
// says when its stream is lost, logs no error and talks to nobody else.
func TestBrowser(t *testing.T) {
	t.Parallel()
	source := &fakeSource{sample: calm(), dead: deadLetters()}
	var answer atomic.Pointer[error]
	o := newOnCall(t, source, Options{Every: 100 * time.Millisecond, Ready: func(context.Context) error {
		if err := answer.Load(); err != nil {
			return *err
		}
		return nil
	}})
	o.blindAfter = 2 * time.Second // how long the page is patient
	stop := run(t, o)
	server := httptest.NewServer(mux(o))
	t.Cleanup(server.Close)
	t.Cleanup(stop) // runs first: Close waits for the streams

	b := browsertest.Open(t)
	b.Go(server.URL + "/oncall")
	b.Wait("the calm verdict", `document.getElementById("word").textContent === "Within SLO"`)
	b.Wait("a hostile excerpt as text", `document.querySelector("#failures .said").textContent.includes("<script>")`)

	// Live: the same document, without a reload, shows what the source says now.
	b.Wait("a mark on the document", `window.sameDocument = true`)
	source.set(func(f *fakeSource) { f.sample = late() })
	b.Wait("the breach, live", `window.sameDocument && document.title.startsWith("Breaching") &&
		document.getElementById("verdict").className === "breaching" &&
		document.getElementById("says").textContent.includes("standard is past its SLO of 30 s") &&
		document.querySelector(".class.late .age strong").textContent === "48 s"`)
	source.set(func(f *fakeSource) { f.sample.Ledger.Delivered++ })
	b.Wait("the imbalance, live", `document.querySelector("#ledger caption").textContent.includes("out by -1")`)

	// What on-call must not miss below the worst: an unknown class, a worker that is
	// gone, a Redis that refuses writes.
	refusal := schedule.ErrFull
	answer.Store(&refusal)
	source.set(func(f *fakeSource) {
		f.sample.ExpiredLeases = 5
		f.sample.Ages = append(f.sample.Ages,
			schedule.Ages{Class: schedule.OtherClass, Lane: delivery.Fresh, Eligible: ago(1200 * time.Millisecond)})
	})
	b.Wait("the rest, live", `window.sameDocument && document.querySelectorAll(".class").length === 3 &&
		document.getElementById("says").textContent.includes("no dispatcher reclaims expired leases") &&
		document.getElementById("verdict").textContent.includes("a class that this server was not told of") &&
		document.getElementById("verdict").textContent.includes("Redis refuses writes: redis is out of memory") &&
		document.querySelector("#ledger .late td").textContent === "5"`)
	b.Wait("links to the evidence", `document.querySelectorAll('#failures a[href^="/oncall/dead-letters/dlv_"]').length === 3 &&
		document.querySelectorAll('#failures a[href^="/oncall/events/evt_"]').length === 3`)

	source.set(func(f *fakeSource) { f.sample.OnHold, f.sample.Held, f.onHold = 5, 1245, standings() })
	b.Wait("who is on hold, live", `window.sameDocument &&
		document.querySelectorAll('#holds a[href^="/oncall/subscribers/sub_"]').length === 5 &&
		document.querySelector("#holds .reason").textContent === "paused, breaker" &&
		document.getElementById("beside").textContent.includes("1,245 deliveries wait")`)

	for _, width := range []int64{360, 768, 1280} {
		b.Size(width, 900, 1)
		b.Fits()
	}
	b.Check(server.URL, "/oncall", "/oncall/events", "/oncall/static/oncall.css", "/oncall/static/oncall.js")

	stop()
	b.Wait("the loss of the stream", `document.title.startsWith("Stream lost") &&
		!document.getElementById("lost").hidden`)
}

func mux(o *OnCall) http.Handler {
	m := http.NewServeMux()
	m.Handle("/v1/oncall", o.JSON())
	m.Handle("/oncall", o.Page())
	m.Handle("/oncall/static/", o.Page())
	m.Handle("/oncall/events", o.Events())
	return m
}

// deadLetters are a few that look like real ones, the first from somebody hostile.
func deadLetters() []schedule.DeadLetter {
	hostile := deadLetter(delivery.Exhausted, `<script>alert(1)</script><img src="https://evil.example/x.png" onerror=alert(2)>`)
	gone := deadLetter(delivery.Gone, "This endpoint was removed.\r\nSee https://status.example/")
	gone.History[0].Error, gone.LastOutcome, gone.Attempts = "answered 410", delivery.Gone, 1
	gone.ID, gone.SubscriberID = delivery.NewID("evt_01JDNA1C", "sub_01JDN9AAB3C5D7E9F1G3H5J7KM"), "sub_01JDN9AAB3C5D7E9F1G3H5J7KM"
	full := deadLetter(delivery.HeldFull, "")
	full.History, full.LastOutcome, full.Attempts = nil, "", 0
	full.ID = delivery.NewID("evt_01JDNA7Q", full.SubscriberID)
	return []schedule.DeadLetter{hostile, gone, full}
}

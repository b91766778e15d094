package console_test

import (
	"net/http"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/fanout/fanout/client"
	"github.com/fanout/fanout/test/browsertest"
	"github.com/fanout/fanout/test/redistest"
)

// screenshotsTo names the variable with the folder for pictures of the pages; without it
// none are taken.
const screenshotsTo = "FANOUT_SCREENSHOTS"

// scene is a bad night: what TestScreenshots shows.
type scene struct {
	*stack
	printer, crm, erp client.CreatedSubscriber
}

// maxPicture is what one may take in the repository, in bytes.
const maxPicture = 200 << 10

// TestScreenshots plays a bad night for three minutes and takes pictures of it, at phone
// and desktop size, light and dark.
func TestScreenshots(t *testing.T) {
	dir := os.Getenv(screenshotsTo)
	if dir == "" {
		t.Skip("takes three minutes; make screenshots")
	}
	dir, err := filepath.Abs(dir)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll(dir, 0o750); err != nil {
		t.Fatal(err)
	}
	sc := newScene(t)
	operator, _ := sc.key("night shift", "operator")
	redrive, stop := sc.play()
	defer stop()

	b := browsertest.Open(t)
	b.Size(1280, 900, 1)
	b.Go(sc.url + "/oncall")
	b.Wait("the login", `!!document.getElementById("key")`)
	b.Type("#key", operator)
	b.Click(".login button")
	b.Wait("the redrive", `!!document.querySelector("#redrives form") && document.querySelectorAll(".answer").length === 4`)
	b.Fits()
	b.Wait("who fails", `document.querySelectorAll("#failing tbody tr").length >= 2 && document.querySelectorAll("#holds tbody tr").length >= 1`)
	shots := func(page string, tall int64, schemes ...string) {
		for i, scheme := range schemes {
			b.Picture(filepath.Join(dir, page+"-desktop-"+scheme+".png"), 1280, tall, 1, scheme)
			other := schemes[len(schemes)-1-i]
			b.Picture(filepath.Join(dir, page+"-phone-"+other+".png"), 390, 844, 2, other)
		}
		b.Size(1280, 900, 1)
	}
	shots("oncall", 1560, "light", "dark")
	b.Go(sc.url + "/oncall/subscribers/" + sc.crm.ID)
	shots("subscriber", 900, "light")
	b.Go(sc.url + "/oncall/deliveries/" + sc.tried(sc.erp.ID))
	shots("delivery", 900, "light", "dark")
	b.Go(sc.url + "/oncall/redrives/" + redrive)
	b.Wait("the canary's end", `document.querySelector(".word").textContent.includes("approval")`)
	shots("redrive", 760, "dark")

	files, err := filepath.Glob(filepath.Join(dir, "*.png"))
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		info, err := os.Stat(f)
		if err != nil {
			t.Fatal(err)
		}
		if info.Size() > maxPicture {
			t.Errorf("%s has %d bytes, more than %d", filepath.Base(f), info.Size(), maxPicture)
		}
	}
}

func newScene(t *testing.T) *scene {
	t.Helper()
	s := newStack(t, redistest.Server(t).Addr())
	for path, took := range map[string]time.Duration{
		"/warehouse-leipzig": 30 * time.Millisecond, "/buyer-app": 15 * time.Millisecond, "/dhl-desk": 45 * time.Millisecond,
		"/seller-portal": 25 * time.Millisecond, "/label-printer": 20 * time.Millisecond, "/old-crm": 35 * time.Millisecond,
	} {
		s.hooks.slow.Store(path, took)
	}
	s.register("warehouse-leipzig", "express", "shipment.*")
	s.register("buyer-app", "express", "shipment.*")
	s.register("dhl-desk", "standard", "shipment.*")
	s.register("seller-portal", "standard", "shipment.*")
	return &scene{
		stack:   s,
		printer: s.register("label-printer", "standard", "shipment.label_printed"),
		crm:     s.register("old-crm", "standard", "shipment.created", "shipment.delivered"),
		erp:     s.register("hung-erp", "standard", "shipment.exception"),
	}
}

// play goes on until the night is at its worst: one endpoint is away, one hangs, and what
// a third refused is being redriven, with its canary delivered.
// It goes on until it is stopped.
func (sc *scene) play() (redriveID string, stop func()) {
	sc.Helper()
	over := make(chan struct{})
	var posting sync.WaitGroup
	stop = func() { close(over); posting.Wait() }
	posting.Go(func() {
		tick := time.NewTicker(500 * time.Millisecond)
		defer tick.Stop()
		for i := 0; ; i++ {
			sc.post(8, "shipment.created")
			sc.post(4, "shipment.delivered")
			if i%40 == 30 { // a burst, as after a pause of a warehouse
				sc.post(900, "shipment.in_transit")
			}
			if i%10 == 0 {
				sc.post(2, "shipment.label_printed")
				sc.post(1, "shipment.exception")
			}
			select {
			case <-tick.C:
			case <-over:
				return
			}
		}
	})
	sc.wait(40 * time.Second)
	sc.hooks.answer("/label-printer", http.StatusUnprocessableEntity)
	sc.wait(35 * time.Second)
	sc.hooks.answer("/old-crm", http.StatusServiceUnavailable)
	sc.hooks.slow.Store("/hung-erp", time.Minute)
	sc.dead(sc.printer.ID, 8)
	sc.wait(40 * time.Second)
	sc.hooks.answer("/label-printer", http.StatusOK)
	made, err := sc.admin.CreateRedrive(sc.Context(), client.RedriveOrder{
		Filter: &client.DeadLetterFilter{SubscriberID: sc.printer.ID}, Reason: "the label service is back, ticket 4711",
	})
	sc.ok(err)
	sc.until("the canary", func() bool {
		r, err := sc.admin.GetRedrive(sc.Context(), made.ID)
		sc.ok(err)
		return r.State == client.RedriveAwaiting
	})
	sc.wait(8 * time.Second)
	sc.post(900, "shipment.in_transit") // so that there is something to be seen of slots and ages
	sc.wait(2 * time.Second)
	return made.ID, stop
}

// wait lets the night go on. There is nothing to be waited for but time: it is what the
// charts show.
func (sc *scene) wait(d time.Duration) {
	sc.Helper()
	select {
	case <-time.After(d):
	case <-sc.Context().Done():
		sc.Fatal("the test is over")
	}
}

// tried is a scheduled delivery of a subscriber with the most attempts behind it.
func (sc *scene) tried(subscriberID string) (id string) {
	sc.Helper()
	l, err := sc.admin.ListDeliveries(sc.Context(), client.DeliveryFilter{SubscriberID: subscriberID, State: client.Scheduled}, client.Page{Limit: 100})
	sc.ok(err)
	most := -1
	for _, d := range l.Data {
		if d.Attempts > most {
			id, most = d.ID, d.Attempts
		}
	}
	if id == "" {
		sc.Fatal("no delivery waits")
	}
	return id
}

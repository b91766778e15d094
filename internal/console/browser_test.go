package console_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/fanout/fanout/client"
	"github.com/fanout/fanout/test/browsertest"
	"github.com/fanout/fanout/test/redistest"
)

// TestBrowser is a night on call in a real browser, over a whole service: sign in, see an
// endpoint begin to fail without a reload, follow it down to one attempt, repair it by a
// redrive whose canary is looked at and approved, sign out. Nothing is logged to the
// console, nobody else is asked for anything, and nothing sticks out of a phone.
func TestBrowser(t *testing.T) {
	t.Parallel()
	s := newStack(t, redistest.Server(t).Addr())
	sub := s.register("label-printer", "standard", "shipment.*")
	operator, keyID := s.key("night shift", "operator")
	s.post(5, "shipment.created")
	s.until("the first deliveries", func() bool { return s.hooks.posts.Load() >= 5 })

	b := browsertest.Open(t)
	b.Size(1280, 900, 1)
	b.Go(s.url + "/oncall")
	b.Wait("the login", `location.pathname === "/oncall/login" && !!document.getElementById("key")`)
	b.Type("#key", operator)
	b.Click(".login button")
	b.Wait("the page", `location.pathname === "/oncall" && document.getElementById("word").textContent === "Within SLO"`)
	b.Wait("who looks", `document.querySelector(".visitor").textContent.includes("night shift")`)
	b.Wait("the slots", `document.getElementById("slots").textContent.includes("24 slots")`)

	// An endpoint begins to fail, and the same document says so.
	b.Wait("a mark on the document", `window.sameDocument = true`)
	s.hooks.answer("/label-printer", http.StatusUnprocessableEntity)
	s.post(12, "shipment.label_printed")
	s.dead(sub.ID, 12)
	b.Wait("who fails, live", `window.sameDocument && !!document.querySelector('#failing a[href="/oncall/subscribers/`+sub.ID+`"]')`)
	b.Wait("the dead letters, live", `window.sameDocument && document.querySelectorAll('#failures a[href^="/oncall/dead-letters/dlv_"]').length === 10 &&
		document.getElementById("failures").textContent.includes("<script>alert(1)</script>")`)
	b.Wait("triage, live", `window.sameDocument && document.querySelectorAll(".answer").length === 4 &&
		document.querySelectorAll(".answer")[1].querySelector(".verb").textContent.trim() === "Yes"`)

	// Down to one attempt, and nothing sticks out on the way.
	fits := func() {
		for _, width := range []int64{360, 920, 1280} {
			b.Size(width, 900, 1)
			b.Fits()
		}
	}
	fits()
	b.Click(`#failing a[href="/oncall/subscribers/` + sub.ID + `"]`)
	b.Wait("the subscriber", `document.querySelector("h1").textContent.includes("label-printer") && document.querySelectorAll("#dead tbody tr").length === 10`)
	fits()
	b.Click("#dead tbody a")
	b.Wait("the dead letter", `location.pathname.startsWith("/oncall/dead-letters/dlv_") && !!document.querySelector("svg.rail[role=img]") &&
		document.querySelector(".attempts").textContent.includes("<script>alert(1)</script>")`)
	fits()
	b.Click(`.facts a[href^="/oncall/events/"]`)
	b.Wait("the event", `document.querySelector("#deliveries tbody a").href.includes("/oncall/deliveries/dlv_")`)
	fits()
	b.Click("#deliveries tbody a")
	b.Wait("the delivery", `document.querySelector(".word").textContent.includes("dead")`)
	fits()

	// Repaired: a redrive shows on the page by itself, its canary waits for a person.
	s.hooks.answer("/label-printer", http.StatusOK)
	b.Go(s.url + "/oncall")
	b.Wait("a mark on the document", `window.sameDocument = true`)
	made, err := s.admin.CreateRedrive(t.Context(), client.RedriveOrder{
		Filter: &client.DeadLetterFilter{SubscriberID: sub.ID}, Reason: "the label service is back",
	})
	s.ok(err)
	form := `#redrives form[action$="` + made.ID + `/approve"]`
	b.Wait("the redrive, live", `window.sameDocument && !!document.querySelector('`+form+`')`)
	b.Click(`#redrives details:has(form[action$="/approve"]) > summary`)
	b.Wait("its form", `document.querySelector('`+form+` input[type=text]').checkVisibility()`)
	b.Type(form+" input[type=text]", "label of shp_8842000 printed once, ")
	// Samples go on coming, and what is being typed stays.
	b.Wait("a later sample", `window.sampledAt ??= document.querySelector("#fresh time").dateTime, document.querySelector("#fresh time").dateTime !== window.sampledAt`)
	b.Type(form+" input[type=text]", "seen in its log")
	fits()
	b.Click(form + " button")
	b.Wait("the approval", `location.pathname === "/oncall/redrives/`+made.ID+`" && document.querySelector(".told.done").textContent.includes("Approved")`)
	b.Wait("its end, without a reload", `document.querySelector(".word").textContent.includes("Done") && document.getElementById("progress").textContent.includes("12 delivered")`)
	fits()
	log, err := s.admin.ListAudit(t.Context(), client.AuditFilter{Action: "approveRedrive"}, client.Page{})
	s.ok(err)
	if len(log.Data) != 1 || log.Data[0].Actor.ID != keyID || log.Data[0].Reason != "label of shp_8842000 printed once, seen in its log" {
		t.Errorf("the audit has %+v", log.Data)
	}

	// Out, and a page that was open goes to the login by itself.
	b.Go(s.url + "/oncall")
	b.Click(`form[action="/oncall/logout"] button`)
	b.Wait("the login", `location.pathname === "/oncall/login"`)
	b.Go(s.url + "/oncall/subscribers/" + sub.ID)
	b.Wait("the login, and the way back", `location.search === "?next=%2Foncall%2Fsubscribers%2F`+sub.ID+`"`)
	b.Type("#key", operator)
	b.Click(".login button")
	b.Wait("the way back", `location.pathname === "/oncall/subscribers/`+sub.ID+`"`)

	b.Check(s.url, "/oncall", "/oncall/events", "/oncall/static/oncall.css", "/oncall/static/oncall.js", "/oncall/login")
	if strings.Contains(s.logged(), operator) {
		t.Error("the log shows the key")
	}
}

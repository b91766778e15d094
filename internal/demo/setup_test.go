package demo

import (
	"context"
	"net/netip"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/fanout/fanout/internal/subscriber"
	"github.com/fanout/fanout/internal/webhook"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// Published with the Standard Webhooks libraries: a secret to nobody.
const vectorSecret = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"

const otherSecret = "whsec_C2FVsBQIhrscChlQIMV+b5sSYspob7oD"

const deliveryID = "dlv_3f9a7k2m4n6p8q0r1s3t5v70"

// newSender is the service's own sender, allowed to call this machine.
func newSender(t *testing.T) *webhook.Sender {
	t.Helper()
	s := webhook.New(webhook.Options{Version: "test", Guard: webhook.NewGuard(webhook.GuardOptions{
		AllowHTTP: true, AnyPort: true, AllowCIDRs: []netip.Prefix{netip.MustParsePrefix("127.0.0.1/32")},
	})})
	t.Cleanup(s.Close)
	return s
}

// request is an attempt with ample time.
func request(url, id string) webhook.Request {
	return webhook.Request{
		URL: url, Secrets: []subscriber.Secret{{Value: vectorSecret}}, DeliveryID: id, Attempt: 1, DeliveryCount: 1,
		Timestamp: time.Now(), Body: []byte(`{"shipment_id":"shp_1"}`), Timeout: 10 * time.Second,
	}
}

// until looks again and again, for what has no other way to say that it is so.
func until(t *testing.T, so func() bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for !so() {
		select {
		case <-ctx.Done():
			t.Fatal("it never came to be so")
		case <-tick.C:
		}
	}
}

package webhook

import (
	"context"
	"encoding/base64"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	standardwebhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"

	"github.com/fanout/fanout/internal/delivery"
	"github.com/fanout/fanout/internal/subscriber"
	"github.com/fanout/fanout/internal/subscriber/subtest"
)

// verifies says whether a receiver with this key takes a request that it got at
// that time: by the specification's own library, or ours for a public key, which
// that library does not know.
func verifies(t *testing.T, key string, h http.Header, body []byte, at time.Time) bool {
	t.Helper()
	ours := Verify(key, h, body, at) == nil
	if strings.HasPrefix(key, publicPrefix) {
		return ours
	}
	wh, err := standardwebhooks.NewWebhook(key)
	if err != nil {
		t.Fatal(err)
	}
	theirs := wh.VerifyIgnoringTimestamp(body, h) == nil
	if ours != theirs {
		t.Errorf("we verify: %v, the library: %v", ours, theirs)
	}
	return theirs
}

// TestRotation follows receivers with each of three secrets, of both kinds,
// through two rotations of which the second falls within the overlap of the
// first: one Sender, a store, and sockets. Time is Redis' own, hours apart from
// this machine's.
func TestRotation(t *testing.T) {
	t.Parallel()
	var header http.Header
	var body []byte
	url, _ := serve(t, func(_ http.ResponseWriter, r *http.Request) {
		header = r.Header
		body, _ = io.ReadAll(r.Body)
	})
	now := time.Date(2031, 1, 1, 0, 0, 0, 0, time.UTC)
	m := subtest.NewMemory(1)
	store := subscriber.New(m, subtest.AnyURL{}, nil, func(context.Context) (time.Time, error) { return now, nil })
	s := newSender(t)

	asymmetric := vectors(t)[1]
	third := "whsec_" + base64.StdEncoding.EncodeToString([]byte(strings.Repeat("3", 32)))
	keys := map[string]string{"first": vectorSecret, "second": asymmetric.Public, "third": third}

	sub, err := store.Create(t.Context(), subscriber.Draft{URL: &url, Secret: new(vectorSecret)})
	if err != nil {
		t.Fatal(err)
	}
	rotate := func(secret string, overlap time.Duration) {
		t.Helper()
		if sub, err = store.RotateSecret(t.Context(), sub.ID, subscriber.Rotation{Secret: &secret, Overlap: overlap}); err != nil {
			t.Fatal(err)
		}
	}
	// The order of who signs is checked too: the newest first.
	step := func(what string, after time.Duration, signs ...string) {
		t.Helper()
		now = now.Add(after)
		r := newRequest(sub.URL)
		r.Secrets, r.Timestamp = sub.Secrets, now
		if a := s.Send(t.Context(), r); a.Outcome != delivery.OK {
			t.Fatalf("%s: %+v", what, a)
		}
		each := strings.Split(header.Get(HeaderSignature), " ")
		if len(each) != len(signs) {
			t.Fatalf("%s: %d signatures, want of %v", what, len(each), signs)
		}
		for name, key := range keys {
			at := -1
			for i := range each {
				if h := headers(r.DeliveryID, now, each[i]); verifies(t, key, h, body, now) {
					at = i
				}
			}
			want := -1
			for i, n := range signs {
				if n == name {
					want = i
				}
			}
			if at != want || verifies(t, key, header, body, now) != (want >= 0) {
				t.Errorf("%s: the signature of the %s is number %d, want %d", what, name, at, want)
			}
		}
	}
	step("before", 0, "first")
	rotate(asymmetric.Secret, 24*time.Hour)
	step("rotated", time.Hour, "second", "first")
	rotate(third, 24*time.Hour)
	step("rotated within the overlap", time.Hour, "third", "second", "first")
	step("just before the first ends", 22*time.Hour-time.Millisecond, "third", "second", "first")
	step("the first has ended", time.Millisecond, "third", "second")
	step("just before the second ends", time.Hour-time.Millisecond, "third", "second")
	step("both have ended", time.Millisecond, "third")
	rotate(vectorSecret, 0)
	step("at once", 0, "first")
}

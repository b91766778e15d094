package main

import (
	"bytes"
	"crypto/ed25519"
	"encoding/base64"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	standardwebhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"
)

const secret = "whsec_C2FVsBQIhrscChlQIMV+b5sSYspob7oD"

func post(t *testing.T, rc *receiver, id, body string) *httptest.ResponseRecorder {
	t.Helper()
	now := time.Now()
	hmac, err := standardwebhooks.NewWebhook(secret)
	if err != nil {
		t.Fatal(err)
	}
	signature, err := hmac.Sign(id, now, []byte(body))
	if err != nil {
		t.Fatal(err)
	}
	r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/hook", strings.NewReader(body))
	r.Header.Set("webhook-id", id)
	r.Header.Set("webhook-timestamp", strconv.FormatInt(now.Unix(), 10))
	r.Header.Set("webhook-signature", signature)
	w := httptest.NewRecorder()
	rc.routes().ServeHTTP(w, r)
	return w
}

// What cannot be stored is asked for again, and what cannot be read is not.
func TestTroubleIsAnsweredAsSuch(t *testing.T) {
	rc, err := open(secret, filepath.Join(t.TempDir(), "receiver.db"))
	if err != nil {
		t.Fatal(err)
	}
	const good = `{"type":"shipment.delivered","timestamp":"2026-03-01T09:30:00+01:00","shipment_id":"shp_1"}`
	for _, c := range []struct {
		body string
		want int
	}{
		{good, http.StatusNoContent},
		{`{"type":7}`, http.StatusBadRequest},
		{strings.Repeat(" ", maxBody+1), http.StatusRequestEntityTooLarge},
	} {
		if w := post(t, rc, "dlv_1", c.body); w.Code != c.want {
			t.Errorf("%.20s was answered %d, want %d", c.body, w.Code, c.want)
		}
	}
	rc.db.Close()
	if w := post(t, rc, "dlv_2", good); w.Code != http.StatusServiceUnavailable || w.Header().Get("Retry-After") == "" {
		t.Errorf("without a store: %d", w.Code)
	}
}

func TestSecretIsNeeded(t *testing.T) {
	for _, bad := range []string{"", "whsec_%", "whpk_", "whpk_" + strings.TrimPrefix(secret, "whsec_"), "whsk_" + strings.Repeat("A", 43) + "="} {
		if _, err := open(bad, filepath.Join(t.TempDir(), "receiver.db")); err == nil {
			t.Errorf("%q passed", bad)
		}
	}
}

// By a public key: v1a alone, of now, of this very body.
func TestPublicKeyVerifies(t *testing.T) {
	private := ed25519.NewKeyFromSeed(bytes.Repeat([]byte{7}, ed25519.SeedSize))
	key := "whpk_" + base64.StdEncoding.EncodeToString(private.Public().(ed25519.PublicKey))
	v, err := newVerifier(key)
	if err != nil {
		t.Fatal(err)
	}
	headers := func(age time.Duration, signed string) http.Header {
		stamp := strconv.FormatInt(time.Now().Add(-age).Unix(), 10)
		signature := ed25519.Sign(private, []byte("dlv_1."+stamp+"."+signed))
		h := http.Header{}
		h.Set("webhook-id", "dlv_1")
		h.Set("webhook-timestamp", stamp)
		h.Set("webhook-signature", "v1,AAAA v1a,% v1a,"+base64.StdEncoding.EncodeToString(signature))
		return h
	}
	only := func(version string) http.Header {
		h := headers(0, "{}")
		_, signature, _ := strings.Cut(h.Get("webhook-signature"), "% v1a,")
		h.Set("webhook-signature", version+signature)
		return h
	}
	for what, c := range map[string]struct {
		h    http.Header
		good bool
	}{
		"one of three":      {headers(0, "{}"), true},
		"alone":             {only("v1a,"), true},
		"as another scheme": {only("v1,"), false},
		"of another body":   {headers(0, "{ }"), false},
		"of an hour ago":    {headers(time.Hour, "{}"), false},
		"of tomorrow":       {headers(-24*time.Hour, "{}"), false},
		"none":              {http.Header{}, false},
	} {
		if err := v.Verify([]byte("{}"), c.h); (err == nil) != c.good {
			t.Errorf("%s: %v", what, err)
		}
	}
}

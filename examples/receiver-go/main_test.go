package main

import (
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"
)

const secret = "whsec_C2FVsBQIhrscChlQIMV+b5sSYspob7oD"

func post(t *testing.T, rc *receiver, id, body string) *httptest.ResponseRecorder {
	t.Helper()
	now := time.Now()
	signature, err := rc.webhook.Sign(id, now, []byte(body))
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
	for _, bad := range []string{"", "whsec_%"} {
		if _, err := open(bad, filepath.Join(t.TempDir(), "receiver.db")); err == nil {
			t.Errorf("%q passed", bad)
		}
	}
}

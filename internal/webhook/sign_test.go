package webhook

import (
	"bytes"
	"crypto/ed25519"
	"encoding/base64"
	"encoding/json"
	"errors"
	"net/http"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	standardwebhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"

	"github.com/fanout/fanout/internal/subscriber"
)

type vector struct {
	Name, Secret, Public, ID, Payload, Signature string
	Timestamp                                    int64
}

func vectors(t *testing.T) []vector {
	t.Helper()
	b, err := os.ReadFile("testdata/signing.json")
	if err != nil {
		t.Fatal(err)
	}
	var vs []vector
	if err := json.Unmarshal(b, &vs); err != nil || len(vs) < 4 {
		t.Fatalf("%d vectors, %v", len(vs), err)
	}
	return vs
}

func headers(id string, at time.Time, signature string) http.Header {
	return http.Header{
		HeaderID: {id}, HeaderTimestamp: {strconv.FormatInt(at.Unix(), 10)}, HeaderSignature: {signature},
	}
}

func TestSignVectors(t *testing.T) {
	t.Parallel()
	for _, v := range vectors(t) {
		t.Run(v.Name, func(t *testing.T) {
			t.Parallel()
			at := time.Unix(v.Timestamp, 0)
			got, err := Sign([]subscriber.Secret{{Value: v.Secret}}, v.ID, at, []byte(v.Payload))
			if err != nil || got != v.Signature {
				t.Fatalf("signed %q, %v, want %q", got, err, v.Signature)
			}
			key := v.Secret
			if v.Public != "" {
				key = v.Public
			}
			h := headers(v.ID, at, got)
			if err := Verify(key, h, []byte(v.Payload), at); err != nil {
				t.Errorf("verify: %v", err)
			}
			if err := Verify(key, h, []byte(v.Payload+" "), at); !errors.Is(err, ErrBadSignature) {
				t.Errorf("a longer body: %v", err)
			}
		})
	}
}

// TestSignEverySecret: one signature for each active secret, in order, of both
// kinds, and each is found by its own key.
func TestSignEverySecret(t *testing.T) {
	t.Parallel()
	now := time.Unix(1_800_000_000, 0)
	vs := vectors(t)
	other := "whsec_" + base64.StdEncoding.EncodeToString(bytes.Repeat([]byte{9}, 64))
	private, _ := base64.StdEncoding.DecodeString(strings.TrimPrefix(vs[1].Secret, "whsk_"))
	seed := "whsk_" + base64.StdEncoding.EncodeToString(private[:ed25519.SeedSize])
	got, err := Sign([]subscriber.Secret{
		{Value: vs[0].Secret, ExpiresAt: now.Add(time.Second)},
		{Value: "whsec_broken", ExpiresAt: now}, // over, so of no interest
		{Value: seed},
		{Value: other},
	}, "dlv_1", now, []byte("{}"))
	if err != nil {
		t.Fatal(err)
	}
	parts := strings.Split(got, " ")
	if len(parts) != 3 || !strings.HasPrefix(parts[0], "v1,") ||
		!strings.HasPrefix(parts[1], "v1a,") || !strings.HasPrefix(parts[2], "v1,") {
		t.Fatalf("signatures: %q", got)
	}
	for _, key := range []string{vs[0].Secret, vs[1].Public, other} {
		if err := Verify(key, headers("dlv_1", now, got), []byte("{}"), now); err != nil {
			t.Errorf("%.6s: %v", key, err)
		}
	}
	for _, key := range []string{vs[0].Secret, other} { // by the specification's own library
		wh, err := standardwebhooks.NewWebhook(key)
		if err != nil {
			t.Fatal(err)
		}
		if err := wh.VerifyIgnoringTimestamp([]byte("{}"), headers("dlv_1", now, got)); err != nil {
			t.Error(err)
		}
	}
}

func TestSignRefuses(t *testing.T) {
	t.Parallel()
	now := time.Unix(1_800_000_000, 0)
	good := subscriber.Secret{Value: vectorSecret}
	for name, secrets := range map[string][]subscriber.Secret{
		"none":              nil,
		"all expired":       {{Value: vectorSecret, ExpiresAt: now.Add(-time.Second)}},
		"short":             {{Value: "whsec_c2hvcnQ="}},
		"public key":        {{Value: vectors(t)[1].Public}},
		"good, then broken": {good, {Value: "whsec_broken!"}},
	} {
		if got, err := Sign(secrets, "dlv_1", now, []byte("{}")); !errors.Is(err, ErrUnsigned) || got != "" {
			t.Errorf("%s: %q, %v", name, got, err)
		}
	}
	if _, err := Sign([]subscriber.Secret{good}, "", now, nil); !errors.Is(err, ErrUnsigned) {
		t.Errorf("no id: %v", err)
	}
}

func TestVerifyRefuses(t *testing.T) {
	t.Parallel()
	now := time.Unix(1_800_000_000, 0)
	body := []byte(`{"a":1}`)
	sig, err := Sign([]subscriber.Secret{{Value: vectorSecret}}, "dlv_1", now, body)
	if err != nil {
		t.Fatal(err)
	}
	good := headers("dlv_1", now, sig)
	with := func(key, value string) http.Header {
		h := good.Clone()
		if value == "" {
			h.Del(key)
		} else {
			h.Set(key, value)
		}
		return h
	}
	other := "whsec_" + base64.StdEncoding.EncodeToString(bytes.Repeat([]byte{9}, 32))
	for name, c := range map[string]struct {
		key  string
		h    http.Header
		at   time.Time
		want error
	}{
		"as sent":            {vectorSecret, good, now, nil},
		"at the tolerance":   {vectorSecret, good, now.Add(Tolerance), nil},
		"too old":            {vectorSecret, good, now.Add(Tolerance + time.Second), ErrTimestamp},
		"too new":            {vectorSecret, good, now.Add(-Tolerance - time.Second), ErrTimestamp},
		"other key":          {other, good, now, ErrBadSignature},
		"other id":           {vectorSecret, with(HeaderID, "dlv_2"), now, ErrBadSignature},
		"other time":         {vectorSecret, with(HeaderTimestamp, "1800000001"), now, ErrBadSignature},
		"no id":              {vectorSecret, with(HeaderID, ""), now, ErrBadSignature},
		"no time":            {vectorSecret, with(HeaderTimestamp, ""), now, ErrBadSignature},
		"time in words":      {vectorSecret, with(HeaderTimestamp, "noon"), now, ErrBadSignature},
		"no signature":       {vectorSecret, with(HeaderSignature, ""), now, ErrBadSignature},
		"of another version": {vectorSecret, with(HeaderSignature, strings.Replace(sig, "v1,", "v1a,", 1)), now, ErrBadSignature},
		"without version":    {vectorSecret, with(HeaderSignature, sig[3:]), now, ErrBadSignature},
		"among nonsense":     {vectorSecret, with(HeaderSignature, "v1 v1, v0,x  v1,!! "+sig), now, nil},
		"the private key":    {vectors(t)[1].Secret, good, now, subscriber.ErrBadSecret},
		"a short public key": {"whpk_c2hvcnQ=", good, now, subscriber.ErrBadSecret},
		"no key":             {"", good, now, subscriber.ErrBadSecret},
	} {
		if err := Verify(c.key, c.h, body, c.at); !errors.Is(err, c.want) {
			t.Errorf("%s: %v, want %v", name, err, c.want)
		}
	}
}

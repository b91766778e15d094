package webhook

import (
	"bytes"
	"errors"
	"net/http"
	"strconv"
	"testing"
	"time"

	"github.com/fanout/fanout/internal/delivery"
	"github.com/fanout/fanout/internal/subscriber"
)

func BenchmarkSign(b *testing.B) {
	now := time.Unix(1_800_000_000, 0)
	hmacSecret := subscriber.Secret{Value: vectorSecret}
	edSecret := subscriber.Secret{Value: "whsk_6Xb/dCcHpPea21PS1N9VY/NZW723CEc77N4rJCubMbfVKIDij2HKpMKkioLlX0dRqSKJp4AJ6p9lMicMFs6Kvg=="}
	for name, c := range map[string]struct {
		secrets []subscriber.Secret
		size    int
	}{
		"v1/1KiB":       {[]subscriber.Secret{hmacSecret}, 1 << 10},
		"v1/256KiB":     {[]subscriber.Secret{hmacSecret}, 256 << 10},
		"v1 twice/1KiB": {[]subscriber.Secret{hmacSecret, hmacSecret}, 1 << 10},
		"v1a/1KiB":      {[]subscriber.Secret{edSecret}, 1 << 10},
	} {
		b.Run(name, func(b *testing.B) {
			body := bytes.Repeat([]byte("x"), c.size)
			b.ReportAllocs()
			b.SetBytes(int64(c.size))
			for b.Loop() {
				if _, err := Sign(c.secrets, "dlv_0001", now, body); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// BenchmarkSend compares an attempt with the bare HTTP client on the same
// endpoint: the difference is what signing, guard and trace cost.
func BenchmarkSend(b *testing.B) {
	url, _ := serve(b, func(http.ResponseWriter, *http.Request) {})
	failing, _ := serve(b, status(500, "no"))
	send := func(url string, want delivery.Outcome) func(*testing.B) {
		return func(b *testing.B) {
			b.Helper()
			s := newSender(b)
			r := newRequest(url)
			b.ReportAllocs()
			for b.Loop() {
				if a := s.Send(b.Context(), r); a.Outcome != want {
					b.Fatalf("%+v", a)
				}
			}
		}
	}
	b.Run("delivered", send(url, delivery.OK))
	b.Run("failed", send(failing, delivery.HTTP5xx))
	b.Run("refused", send("http://10.0.0.1/", delivery.BlockedAddress))
	b.Run("parallel", func(b *testing.B) {
		s := newSender(b)
		r := newRequest(url)
		b.ReportAllocs()
		b.RunParallel(func(pb *testing.PB) {
			for pb.Next() {
				if a := s.Send(b.Context(), r); a.Outcome != delivery.OK {
					b.Errorf("%+v", a)
				}
			}
		})
	})
	b.Run("bare client", func(b *testing.B) {
		c := &http.Client{Transport: &http.Transport{}}
		defer c.CloseIdleConnections()
		body := newRequest(url).Body
		b.ReportAllocs()
		for b.Loop() {
			resp, err := c.Post(url, "application/json", bytes.NewReader(body))
			if err != nil {
				b.Fatal(err)
			}
			_ = resp.Body.Close()
		}
	})
}

// TestSignAllocates a bounded number of times: the body is never copied, and a signer
// that is kept saves most of the rest.
func TestSignAllocates(t *testing.T) {
	secrets := []subscriber.Secret{{Value: vectorSecret}}
	now := time.Unix(1_800_000_000, 0)
	body := make([]byte, 256<<10)
	if n := testing.AllocsPerRun(100, func() { _, _ = Sign(secrets, "dlv_0001", now, body) }); n > 18 {
		t.Errorf("%v allocations a signature", n)
	}
	kept := newSender(t).signer
	// The race detector has a pool forget one in four.
	if n := testing.AllocsPerRun(100, func() { _, _ = sign(kept, secrets, "dlv_0001", now, body) }); n > 6 {
		t.Errorf("%v allocations a signature by a kept signer", n)
	}
}

// A full memo begins anew, and goes on giving the right answers.
func TestMemoIsBounded(t *testing.T) {
	t.Parallel()
	var m memo[string]
	made := 0
	double := func(s string) (string, error) {
		made++
		if s == "bad" {
			return "", errRequest
		}
		return s + s, nil
	}
	for i := range 2*memoMost + 1 {
		s := strconv.Itoa(i)
		for range 2 {
			if got, err := m.get(s, double); got != s+s || err != nil {
				t.Fatalf("%q of %q, %v", got, s, err)
			}
		}
	}
	if made != 2*memoMost+1 || len(m.known) > memoMost {
		t.Errorf("made %d times, %d kept", made, len(m.known))
	}
	for range 2 {
		if _, err := m.get("bad", double); !errors.Is(err, errRequest) {
			t.Errorf("an error was kept as %v", err)
		}
	}
}

// BenchmarkBuild is what comes before net/http.
func BenchmarkBuild(b *testing.B) {
	s := newSender(b)
	r := newRequest("https://hooks.example.com/orders?shop=1")
	b.ReportAllocs()
	for b.Loop() {
		if _, err := s.build(b.Context(), r); err != nil {
			b.Fatal(err)
		}
	}
}

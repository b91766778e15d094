package access

import (
	"testing"

	"github.com/fanout/fanout/test/redistest"
)

// What each request pays for being known: with keys in memory, no call to Redis.
func BenchmarkAuthenticate(b *testing.B) {
	s, err := Open(redistest.Client(b, redistest.Mini(b).Addr()), Options{Rate: maxRate})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(s.Close)
	var token string
	for range 1000 {
		if _, token, err = s.Keys.Create(b.Context(), NewKey{Name: "n", Role: Producer, RatePerSecond: maxRate}, ""); err != nil {
			b.Fatal(err)
		}
	}
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			_, _ = s.Gate.Authenticate(b.Context(), token) // taken or limited: both are looked up
		}
	})
}

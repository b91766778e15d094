package subscriber_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/fanout/fanout/internal/schedule"
	"github.com/fanout/fanout/internal/subscriber"
	"github.com/fanout/fanout/internal/subscriber/subtest"
)

// clockedStore is a store whose Redis says what time it is by the pointer.
func clockedStore(t *testing.T) (*subtest.Memory, *subscriber.Store, *time.Time) {
	t.Helper()
	now := new(time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC))
	m := subtest.NewMemory(4)
	return m, subscriber.New(m, subtest.AnyURL{}, nil, func(context.Context) (time.Time, error) { return *now, nil }), now
}

// ends says when each of the secrets ends, after a base, -1 for never.
func ends(s subscriber.Subscriber, base time.Time) (after []time.Duration) {
	for _, secret := range s.Secrets {
		if secret.ExpiresAt.IsZero() {
			after = append(after, -1)
		} else {
			after = append(after, secret.ExpiresAt.Sub(base))
		}
	}
	return after
}

// TestRotationsOverlap: what each secret's end is after rotations within the
// overlaps of others, and when the store forgets it.
func TestRotationsOverlap(t *testing.T) {
	t.Parallel()
	m, store, now := clockedStore(t)
	base := *now
	sub := create(t, store, subscriber.Draft{})
	step := func(what string, overlap time.Duration, want ...time.Duration) subscriber.Subscriber {
		t.Helper()
		got, err := store.RotateSecret(t.Context(), sub.ID, subscriber.Rotation{Overlap: overlap})
		if err != nil {
			t.Fatalf("%s: %v", what, err)
		}
		if !slices.Equal(ends(got, base), want) {
			t.Errorf("%s: secrets end after %v, want %v", what, ends(got, base), want)
		}
		return got
	}
	one := step("the first", 24*time.Hour, -1, 24*time.Hour)
	if one.Secrets[1].ID != sub.Secrets[0].ID || one.UpdatedAt != base {
		t.Error("the old one is not what it was")
	}
	*now = base.Add(time.Hour)
	step("a longer one lengthens nothing", 100*time.Hour, -1, 101*time.Hour, 24*time.Hour)
	*now = base.Add(2 * time.Hour)
	two := step("a shorter one shortens all", time.Hour, -1, 3*time.Hour, 3*time.Hour, 3*time.Hour)
	if _, change := m.Told(sub.ID); change != schedule.Edited {
		t.Errorf("a rotation is a change of kind %q", change)
	}

	// What is over is left out of the next write, whatever it is, and not before.
	*now = base.Add(3 * time.Hour)
	if got, _ := store.Get(t.Context(), sub.ID); len(got.Secrets) != 4 {
		t.Errorf("a read left %d", len(got.Secrets))
	}
	patched, err := store.Patch(t.Context(), sub.ID, -1, subscriber.Draft{Name: new("x")})
	if err != nil || len(patched.Secrets) != 1 || patched.Secrets[0] != two.Secrets[0] {
		t.Errorf("after a patch: %v, %v", ends(patched, base), err)
	}
	three := step("at once", 0, -1)
	if three.Secrets[0].Value == two.Secrets[0].Value {
		t.Error("the old one is still there")
	}
	if got, _ := store.Get(t.Context(), sub.ID); len(got.Secrets) != 1 {
		t.Errorf("stored %d", len(got.Secrets))
	}
}

func TestTooManySecrets(t *testing.T) {
	t.Parallel()
	_, store, now := clockedStore(t)
	sub := create(t, store, subscriber.Draft{})
	day := subscriber.Rotation{Overlap: subscriber.DefaultOverlap}
	for range subscriber.MaxSecrets - 1 {
		if _, err := store.RotateSecret(t.Context(), sub.ID, day); err != nil {
			t.Fatal(err)
		}
	}
	before, _ := store.Get(t.Context(), sub.ID)
	_, err := store.RotateSecret(t.Context(), sub.ID, day)
	if !errors.Is(err, subscriber.ErrTooManySecrets) || !strings.Contains(err.Error(), "2026-12-01T12:00:00Z") {
		t.Errorf("one too many: %v", err)
	}
	if after, _ := store.Get(t.Context(), sub.ID); after.Version != before.Version {
		t.Error("the refusal changed something")
	}
	// With no overlap there is room, and once they are over too.
	*now = now.Add(subscriber.DefaultOverlap)
	if got, err := store.RotateSecret(t.Context(), sub.ID, day); err != nil || len(got.Secrets) != 2 {
		t.Errorf("when they are over: %d, %v", len(got.Secrets), err)
	}
	if got, err := store.RotateSecret(t.Context(), sub.ID, subscriber.Rotation{}); err != nil || len(got.Secrets) != 1 {
		t.Errorf("at once: %d, %v", len(got.Secrets), err)
	}
}

// TestRotateToAGivenSecret: safe to repeat, and no way back.
func TestRotateToAGivenSecret(t *testing.T) {
	t.Parallel()
	_, store, now := clockedStore(t)
	base := *now
	sub := create(t, store, subscriber.Draft{})
	given := subscriber.Rotation{Secret: givenSecret(32), Overlap: time.Hour}
	first, err := store.RotateSecret(t.Context(), sub.ID, given)
	if err != nil || first.Secrets[0].Value != *given.Secret {
		t.Fatal(err)
	}
	*now = base.Add(time.Minute)
	again, err := store.RotateSecret(t.Context(), sub.ID, given)
	if err != nil || again.Version != first.Version || !slices.Equal(ends(again, base), []time.Duration{-1, time.Hour}) {
		t.Errorf("the same again: version %d after %d, ends %v, %v", again.Version, first.Version, ends(again, base), err)
	}
	given.Overlap = 10 * time.Minute
	short, err := store.RotateSecret(t.Context(), sub.ID, given)
	if err != nil || !slices.Equal(ends(short, base), []time.Duration{-1, 11 * time.Minute}) || short.Secrets[0] != first.Secrets[0] {
		t.Errorf("a shorter overlap: %v, %v", ends(short, base), err)
	}
	_, err = store.RotateSecret(t.Context(), sub.ID, subscriber.Rotation{Secret: &sub.Secrets[0].Value})
	if got := pointers(t, err); !slices.Equal(got, []string{"/secret"}) {
		t.Errorf("back to the old one: %v", err)
	}
}

func TestRotationIsJudged(t *testing.T) {
	t.Parallel()
	_, store, _ := clockedStore(t)
	sub := create(t, store, subscriber.Draft{})
	for name, c := range map[string]struct {
		r    subscriber.Rotation
		want []string
	}{
		"longest":   {subscriber.Rotation{Overlap: subscriber.MaxOverlap}, nil},
		"too long":  {subscriber.Rotation{Overlap: subscriber.MaxOverlap + 1}, []string{"/overlap"}},
		"negative":  {subscriber.Rotation{Overlap: -1}, []string{"/overlap"}},
		"no secret": {subscriber.Rotation{Secret: new("hunter2")}, []string{"/secret"}},
		"both":      {subscriber.Rotation{Secret: new(""), Overlap: -1}, []string{"/overlap", "/secret"}},
	} {
		_, err := store.RotateSecret(t.Context(), sub.ID, c.r)
		if got := pointers(t, err); !slices.Equal(got, c.want) {
			t.Errorf("%s: faults at %v, want %v", name, got, c.want)
		}
		if err != nil && strings.Contains(err.Error(), "hunter2") {
			t.Errorf("the error quotes the secret: %v", err)
		}
	}
}

// TestSecretsFromBeforeThereWereIds get one that stays.
func TestSecretsFromBeforeThereWereIds(t *testing.T) {
	t.Parallel()
	m, store, _ := clockedStore(t)
	blob := `{"account":"a","url":"https://example.com","class":"standard","filter":{"types":["*"]},` +
		`"secrets":[{"value":"` + *givenSecret(32) + `","created_at":"2026-01-01T00:00:00Z"}]}`
	if _, err := m.PutConfig(t.Context(), "sub_01ABC", 0, []byte(blob), schedule.Terms{}, schedule.Edited); err != nil {
		t.Fatal(err)
	}
	got, err := store.Get(t.Context(), "sub_01ABC")
	if err != nil || got.Secrets[0].ID != "sec_01ABC" || got.URL != "https://example.com" {
		t.Errorf("%q, %v", got.Secrets[0].ID, err)
	}
	next, err := store.RotateSecret(t.Context(), "sub_01ABC", subscriber.Rotation{Overlap: time.Hour})
	if err != nil || next.Secrets[1].ID != "sec_01ABC" || next.Secrets[0].ID == "sec_01ABC" {
		t.Errorf("rotated: %v", err)
	}
}

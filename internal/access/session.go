package access

import (
	"context"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"time"
)

// SessionLife is how long a session lasts at most: a shift. It ends earlier with its
// key, and when its holder signs out.
const SessionLife = 8 * time.Hour

const (
	sessionPrefix = "fos_"
	// maxSeen bounds the sessions that a process remembers for the time that Redis is
	// away: more people than look at one process.
	maxSeen = 256
)

// ErrRole is returned, together with the identity, for a key whose role gets no session.
var ErrRole = errors.New("a key of this role gets no session")

// Session is what a browser has instead of a key.
type Session struct {
	Identity Identity
	// Token is what the browser keeps. It is shown once: Redis has its hash.
	Token     string
	ExpiresAt time.Time
}

// Sessions let a person show a key once and a browser something else from then on: a
// random token that opens what the key opens, for 8 hours. Whether the key still opens
// anything is asked at each use, so that a session ends with its key. It is safe for
// concurrent use, by many processes.
type Sessions struct {
	db   backend
	gate *Gate
	now  func() time.Time

	mu   sync.Mutex
	seen map[string]seenSession // by the hash that Redis has
}

// storedSession is the JSON that Redis keeps of a session.
type storedSession struct {
	KeyID string `json:"key_id"`
	// Proof is of the bootstrap key alone, which has no entry that could be revoked:
	// another bootstrap key ends its sessions. Who reads Redis cannot guess at the key
	// by it, for want of the session's token.
	Proof string `json:"proof,omitempty"`
}

// seenSession is a session as it was last read.
type seenSession struct {
	storedSession

	at time.Time
}

// Begin makes a session for who holds the token of a key, if its role may have one. It
// returns what Gate.Authenticate returns, ErrRole, or an error that wraps ErrUnavailable.
func (s *Sessions) Begin(ctx context.Context, token string, may func(Role) bool) (Session, error) {
	id, err := s.gate.Authenticate(ctx, token)
	if err != nil {
		return Session{Identity: id}, err
	}
	if !may(id.Role) {
		return Session{Identity: id}, fmt.Errorf("begin a session: %w: %s", ErrRole, id.Role)
	}
	secret := make([]byte, secretSize)
	if _, err := rand.Read(secret); err != nil {
		return Session{}, fmt.Errorf("begin a session: %w", err)
	}
	begun := Session{
		Identity: id, Token: sessionPrefix + base64.RawURLEncoding.EncodeToString(secret), ExpiresAt: s.now().Add(SessionLife),
	}
	stored := storedSession{KeyID: id.KeyID}
	if id == Bootstrap {
		stored.Proof = s.gate.proof(begun.Token)
	}
	blob, err := json.Marshal(stored)
	if err != nil {
		return Session{}, fmt.Errorf("begin a session: %w", err)
	}
	if err := s.db.putSession(ctx, sessionHash(begun.Token), string(blob), SessionLife); err != nil {
		return Session{}, fmt.Errorf("begin a session: %w", err)
	}
	return begun, nil
}

// Identity says whose session it is. It returns ErrNoToken for an empty one,
// ErrBadToken for one that is unknown or has ended, *LimitedError together with the
// identity, or an error that wraps ErrUnavailable. While Redis is away a session that was
// used here in the last minute goes on, as its key does.
func (s *Sessions) Identity(ctx context.Context, token string) (Identity, error) {
	switch {
	case token == "":
		return Identity{}, ErrNoToken
	case len(token) != len(sessionPrefix)+secretLen:
		return Identity{}, ErrBadToken
	}
	h := sessionHash(token)
	stored, err := s.read(ctx, h)
	if err != nil {
		return Identity{}, err
	}
	if stored.KeyID == Bootstrap.KeyID {
		if want := s.gate.proof(token); want == "" || !hmac.Equal([]byte(stored.Proof), []byte(want)) {
			return Identity{}, ErrBadToken
		}
		return Bootstrap, nil
	}
	return s.gate.holder(ctx, stored.KeyID)
}

// End ends a session; to end one that is none is no error.
func (s *Sessions) End(ctx context.Context, token string) error {
	h := sessionHash(token)
	s.forget(h)
	if err := s.db.dropSession(ctx, h); err != nil {
		return fmt.Errorf("end a session: %w", err)
	}
	return nil
}

// read asks Redis each time, so that a session that was ended by another process is over
// at once.
func (s *Sessions) read(ctx context.Context, h string) (storedSession, error) {
	blob, err := s.db.session(ctx, h)
	now := s.now()
	if err != nil {
		s.mu.Lock()
		last, known := s.seen[h]
		s.mu.Unlock()
		if known && within(now, last.at, grace) {
			return last.storedSession, nil
		}
		return storedSession{}, fmt.Errorf("look for a session: %w", err)
	}
	var stored storedSession
	if blob == "" || json.Unmarshal([]byte(blob), &stored) != nil {
		s.forget(h)
		return storedSession{}, ErrBadToken
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.seen == nil {
		s.seen = make(map[string]seenSession)
	}
	for other := range s.seen {
		if len(s.seen) < maxSeen {
			break
		}
		delete(s.seen, other)
	}
	s.seen[h] = seenSession{stored, now}
	return stored, nil
}

func (s *Sessions) forget(h string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.seen, h)
}

// sessionHash is what Redis knows a session by.
func sessionHash(token string) string {
	h := hashOf(token)
	return hex.EncodeToString(h[:])
}

// proof ties a session's token to the bootstrap key; "" if there is none.
func (g *Gate) proof(token string) string {
	if g.bootstrap == nil {
		return ""
	}
	mac := hmac.New(sha256.New, g.bootstrap[:])
	mac.Write([]byte(token))
	return hex.EncodeToString(mac.Sum(nil))
}

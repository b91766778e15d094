package access

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/redis/go-redis/v9"
)

// minBootstrap is the least length of a bootstrap key, in characters: 32 random hex
// digits are 128 bits, which is as little as may guard everything.
const minBootstrap = 32

// Options of Open. It prints without the bootstrap key.
type Options struct {
	// Bootstrap is an admin key that is not stored, for the time before there is
	// another: at least 32 printable ASCII characters. Empty means none.
	Bootstrap string `json:"-"`
	// Rate is how many requests each API process takes per second for a key that
	// has no rate of its own; twice as many at once. 0 means no limit.
	Rate float64
	// Now is the clock by which keys expire; nil means time.Now.
	Now func() time.Time
	// Logger may be nil.
	Logger *slog.Logger
}

// Format prints the options without the bootstrap key, under every verb.
func (o Options) Format(s fmt.State, _ rune) {
	_, _ = fmt.Fprintf(s, "access.Options{Bootstrap: %s, Rate: %g}", o.bootstrapState(), o.Rate)
}

// LogValue is as Format.
func (o Options) LogValue() slog.Value {
	return slog.GroupValue(slog.String("bootstrap", o.bootstrapState()), slog.Float64("rate", o.Rate))
}

func (o Options) bootstrapState() string {
	if o.Bootstrap == "" {
		return "none"
	}
	return "set"
}

// check never quotes the bootstrap key.
func (o Options) check() error {
	if b := o.Bootstrap; b != "" {
		switch n := utf8.RuneCountInString(b); {
		case n < minBootstrap:
			return fmt.Errorf("the admin key is %d characters long, must be at least %d: make one with `openssl rand -hex 32`", n, minBootstrap)
		case len(b) > maxToken:
			return fmt.Errorf("the admin key is %d bytes long, must be at most %d", len(b), maxToken)
		case strings.ContainsFunc(b, func(r rune) bool { return r <= ' ' || r > '~' }):
			return errors.New("the admin key must be printable ASCII without blanks and line breaks: it travels in a header")
		}
	}
	if o.Rate < 0 || math.IsNaN(o.Rate) || o.Rate > maxRate {
		return fmt.Errorf("the rate of a key must be 0 (no limit) to %d requests per second, is %g", maxRate, o.Rate)
	}
	return nil
}

// Store is keys, gate, sessions and audit over one Redis.
type Store struct {
	Keys     *Keys
	Gate     *Gate
	Audit    *Audit
	Sessions *Sessions
}

// Open makes a Store. It does not connect. An error is a mistake in the options.
func Open(rdb redis.UniversalClient, o Options) (*Store, error) {
	if err := o.check(); err != nil {
		return nil, fmt.Errorf("open access: %w", err)
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	db := backend{rdb}
	keys := &ring{db: db, rate: o.Rate, now: o.Now, logger: o.Logger}
	s := &Store{
		Keys:  &Keys{db: db, ring: keys, now: o.Now},
		Gate:  &Gate{ring: keys, used: &usage{db: db, logger: o.Logger}, now: o.Now},
		Audit: &Audit{db: db, now: o.Now},
	}
	if o.Bootstrap != "" {
		h := hashOf(o.Bootstrap)
		s.Gate.bootstrap = &h
	}
	s.Sessions = &Sessions{db: db, gate: s.Gate, now: o.Now}
	return s, nil
}

// Close returns when nothing is read or written in the background any more: after
// 2 s at most each, less if Redis answers. The client stays open. It is to be called
// when no more requests come.
func (s *Store) Close() {
	s.Gate.ring.wait()
	s.Gate.used.wait()
}

// Format prints the name alone, as Gate does.
func (*Store) Format(s fmt.State, _ rune) { _, _ = io.WriteString(s, "access.Store") }

// The keys in Redis. Their hash tag puts them on one slot, so that a MULTI over
// several works in a cluster.
const (
	redisKeys    = "{fo:access}:keys"    // hash: key id -> storedKey
	redisRevoked = "{fo:access}:revoked" // hash: key id -> ms
	redisUsed    = "{fo:access}:used"    // hash: key id -> ms
	redisGen     = "{fo:access}:gen"     // string: names the present state of the two first
	redisAudit   = "{fo:access}:audit"   // stream

	redisSession = "{fo:access}:session:" // string, by the SHA-256 of a session's token
)

// backend says in Redis' words what the rest of the package wants. There is no Lua:
// no step here depends on what the one before it has read.
type backend struct{ rdb redis.UniversalClient }

// atomically runs commands in one MULTI.
func (b backend) atomically(ctx context.Context, queue func(redis.Pipeliner)) error {
	_, err := b.rdb.TxPipelined(ctx, func(p redis.Pipeliner) error {
		queue(p)
		return nil
	})
	return failure(err)
}

// failure wraps what Redis did not do. An absent field is no failure.
func failure(err error) error {
	if err == nil || errors.Is(err, redis.Nil) {
		return nil
	}
	return fmt.Errorf("%w: %w", ErrUnavailable, err)
}

// putKey stores a key and removes those that ended long ago. It may run twice.
func (b backend) putKey(ctx context.Context, id, blob, generation string, forget []string) error {
	return b.atomically(ctx, func(p redis.Pipeliner) {
		if len(forget) > 0 { // remove before add: a Redis that is full still removes
			p.HDel(ctx, redisKeys, forget...)
			p.HDel(ctx, redisRevoked, forget...)
			p.HDel(ctx, redisUsed, forget...)
		}
		p.HSet(ctx, redisKeys, id, blob)
		p.Set(ctx, redisGen, generation, 0)
	})
}

// revoke writes when a key was revoked, unless that is known already, and returns
// what holds. It may run twice.
func (b backend) revoke(ctx context.Context, id string, ms int64, generation string) (int64, error) {
	var at *redis.StringCmd
	err := b.atomically(ctx, func(p redis.Pipeliner) {
		p.HSetNX(ctx, redisRevoked, id, ms)
		at = p.HGet(ctx, redisRevoked, id)
		p.Set(ctx, redisGen, generation, 0)
	})
	if err != nil {
		return 0, err
	}
	first, err := at.Int64()
	return first, failure(err)
}

// rows reads keys by id, in that order; those that there are.
func (b backend) rows(ctx context.Context, ids []string) ([]keyRow, error) {
	var blobs, revoked, used *redis.SliceCmd
	err := b.atomically(ctx, func(p redis.Pipeliner) {
		blobs = p.HMGet(ctx, redisKeys, ids...)
		revoked = p.HMGet(ctx, redisRevoked, ids...)
		used = p.HMGet(ctx, redisUsed, ids...)
	})
	if err != nil {
		return nil, err
	}
	out := make([]keyRow, 0, len(ids))
	for i, id := range ids {
		if blob, ok := blobs.Val()[i].(string); ok {
			out = append(out, keyRow{id: id, blob: blob, revoked: msOf(revoked.Val()[i]), used: msOf(used.Val()[i])})
		}
	}
	return out, nil
}

// keyIDs are the ids of all keys, in no order.
func (b backend) keyIDs(ctx context.Context) ([]string, error) {
	ids, err := b.rdb.HKeys(ctx, redisKeys).Result()
	return ids, failure(err)
}

// generation is empty before the first key.
func (b backend) generation(ctx context.Context) (string, error) {
	gen, err := b.rdb.Get(ctx, redisGen).Result()
	return gen, failure(err)
}

// allKeys reads all keys, without their last use, as of one generation.
func (b backend) allKeys(ctx context.Context) (string, []keyRow, error) {
	var gen *redis.StringCmd
	var blobs, revoked *redis.MapStringStringCmd
	err := b.atomically(ctx, func(p redis.Pipeliner) {
		gen = p.Get(ctx, redisGen)
		blobs = p.HGetAll(ctx, redisKeys)
		revoked = p.HGetAll(ctx, redisRevoked)
	})
	if err != nil {
		return "", nil, err
	}
	// A Nil among the replies must not hide an error of another.
	if err := errors.Join(blobs.Err(), revoked.Err()); err != nil {
		return "", nil, failure(err)
	}
	out := make([]keyRow, 0, len(blobs.Val()))
	for id, blob := range blobs.Val() {
		row := keyRow{id: id, blob: blob}
		if ms, ok := revoked.Val()[id]; ok {
			row.revoked = msOf(ms)
		}
		out = append(out, row)
	}
	return gen.Val(), out, nil
}

// msOf reads a time that somebody wrote. What is there and no time counts as long
// ago: a key whose revocation cannot be read is revoked.
func msOf(v any) int64 {
	s, ok := v.(string)
	if !ok {
		return 0
	}
	ms, err := strconv.ParseInt(s, 10, 64)
	if err != nil || ms <= 0 {
		return 1
	}
	return ms
}

// markUsed writes when keys were used last.
func (b backend) markUsed(ctx context.Context, ms map[string]int64) error {
	fields := make([]any, 0, 2*len(ms))
	for id, at := range ms {
		fields = append(fields, id, at)
	}
	return failure(b.rdb.HSet(ctx, redisUsed, fields...).Err())
}

// putSession stores a session for so long.
func (b backend) putSession(ctx context.Context, hash, blob string, life time.Duration) error {
	return failure(b.rdb.Set(ctx, redisSession+hash, blob, life).Err())
}

// session is "" for one that is not there.
func (b backend) session(ctx context.Context, hash string) (string, error) {
	blob, err := b.rdb.Get(ctx, redisSession+hash).Result()
	return blob, failure(err)
}

func (b backend) dropSession(ctx context.Context, hash string) error {
	return failure(b.rdb.Del(ctx, redisSession+hash).Err())
}

// appendAudit adds an entry and drops those before minID, about: a stream is cut in
// whole blocks.
func (b backend) appendAudit(ctx context.Context, values []string, minID string) error {
	return b.atomically(ctx, func(p redis.Pipeliner) {
		p.XTrimMinIDApprox(ctx, redisAudit, minID, 0)
		p.XAdd(ctx, &redis.XAddArgs{Stream: redisAudit, MaxLen: auditMaxLen, Approx: true, Values: values})
	})
}

// scanAudit reads up to n entries before a stream id, exclusive, newest first; from
// the newest if it is empty.
func (b backend) scanAudit(ctx context.Context, before string, n int) ([]auditRow, error) {
	from := "+"
	if before != "" {
		from = "(" + before
	}
	found, err := b.rdb.XRevRangeN(ctx, redisAudit, from, "-", int64(n)).Result()
	if err != nil {
		return nil, failure(err)
	}
	out := make([]auditRow, len(found))
	for i, m := range found {
		out[i] = auditRow{id: m.ID, values: m.Values}
	}
	return out, nil
}

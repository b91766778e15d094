package httpapi

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/fanout/fanout/internal/access"
)

// repeatKey is what to do after a create whose fate is not known.
const repeatKey = "The key may have been made, and nobody has its token. List the keys (GET /v1/keys), " +
	"revoke one that you do not know, and send the request again."

// CreateKey makes a key and shows its token for the only time.
func (s *server) CreateKey(w http.ResponseWriter, r *http.Request, _ CreateKeyParams) {
	s.run(w, r, workTimeout, func(w http.ResponseWriter, r *http.Request) error {
		if s.deps.Keys == nil {
			return noStore()
		}
		var in NewKey
		order := func() access.NewKey {
			return access.NewKey{
				Name: in.Name, Role: access.Role(in.Role), Account: in.Account,
				ExpiresAt: in.ExpiresAt, RatePerSecond: in.RatePerSecond,
			}
		}
		if err := decode(r, &in, func() error { return order().Check(time.Now()) }); err != nil {
			return err
		}
		noteOf(r).repeat = repeatKey
		key, token, err := s.deps.Keys.Create(r.Context(), order(), access.From(r.Context()).KeyID)
		if err != nil {
			return fmt.Errorf("create key: %w", err)
		}
		noteOf(r).id("new_key_id", key.ID)
		s.record(r, change{target: key.ID, account: key.Account, after: keyFacts(key)})
		w.Header().Set("Location", "/v1/keys/"+key.ID)
		v := keyView(key)
		return writeJSON(w, http.StatusCreated, KeyCreated{
			Key: token, ID: v.ID, Name: v.Name, Role: v.Role, Account: v.Account,
			RatePerSecond: v.RatePerSecond, CreatedBy: v.CreatedBy, CreatedAt: v.CreatedAt, ExpiresAt: v.ExpiresAt,
		})
	})
}

// ListKeys shows a page of keys.
func (s *server) ListKeys(w http.ResponseWriter, r *http.Request, p ListKeysParams) {
	s.run(w, r, workTimeout, func(w http.ResponseWriter, r *http.Request) error {
		if s.deps.Keys == nil {
			return noStore()
		}
		limit, err := limitOf(p.Limit)
		if err != nil {
			return err
		}
		after, err := afterID(r, p.Cursor)
		if err != nil {
			return err
		}
		keys, err := s.deps.Keys.List(r.Context(), after, limit+1)
		if err != nil {
			return fmt.Errorf("list keys: %w", err)
		}
		var out KeyList
		keys, out.NextCursor = page(keys, limit, func(k access.Key) string { return k.ID })
		out.Data = make([]Key, 0, len(keys))
		for _, k := range keys {
			out.Data = append(out.Data, keyView(k))
		}
		return writeJSON(w, http.StatusOK, out)
	})
}

// GetKey shows a key.
func (s *server) GetKey(w http.ResponseWriter, r *http.Request, id KeyID) {
	s.run(w, r, workTimeout, func(w http.ResponseWriter, r *http.Request) error {
		key, err := s.findKey(r.Context(), id)
		if err != nil {
			return err
		}
		return writeJSON(w, http.StatusOK, keyView(key))
	})
}

// RevokeKey ends a key.
func (s *server) RevokeKey(w http.ResponseWriter, r *http.Request, id KeyID, _ RevokeKeyParams) {
	s.run(w, r, workTimeout, func(w http.ResponseWriter, r *http.Request) error {
		was, err := s.findKey(r.Context(), id)
		if err != nil {
			return err
		}
		is, err := s.deps.Keys.Revoke(r.Context(), id)
		if err != nil {
			return keyError(err)
		}
		if was.RevokedAt.IsZero() { // again is no change
			s.record(r, change{target: id, account: is.Account, before: keyFacts(was), after: keyFacts(is)})
		}
		return writeJSON(w, http.StatusOK, keyView(is))
	})
}

// GetSelf shows who the request is taken for.
func (s *server) GetSelf(w http.ResponseWriter, r *http.Request) {
	s.run(w, r, workTimeout, func(w http.ResponseWriter, r *http.Request) error {
		who := access.From(r.Context())
		return writeJSON(w, http.StatusOK, Self{ID: who.KeyID, Name: who.Name, Role: Role(who.Role), Account: who.Account})
	})
}

func (s *server) findKey(ctx context.Context, id string) (access.Key, error) {
	if s.deps.Keys == nil {
		return access.Key{}, noStore()
	}
	if !usableID(id, "_") {
		return access.Key{}, notFound("key")
	}
	key, err := s.deps.Keys.Get(ctx, id)
	if err != nil {
		return access.Key{}, keyError(err)
	}
	return key, nil
}

func keyError(err error) error {
	if errors.Is(err, access.ErrNotFound) {
		return notFound("key")
	}
	return fmt.Errorf("read key: %w", err)
}

func keyView(k access.Key) Key {
	return Key{
		ID: k.ID, Name: k.Name, Role: Role(k.Role), Account: k.Account, RatePerSecond: k.RatePerSecond,
		CreatedBy: k.CreatedBy, CreatedAt: k.CreatedAt.UTC(), ExpiresAt: utc(k.ExpiresAt),
		LastUsedAt: utc(k.LastUsedAt), RevokedAt: utc(k.RevokedAt),
	}
}

// keyFacts tell of a key; of its token nothing is known here.
func keyFacts(k access.Key) facts {
	f := facts{"name": k.Name, "role": k.Role}
	if k.Account != "" {
		f["account"] = k.Account
	}
	if k.RatePerSecond > 0 {
		f["rate_per_second"] = k.RatePerSecond
	}
	if !k.ExpiresAt.IsZero() {
		f["expires_at"] = k.ExpiresAt.UTC()
	}
	if !k.RevokedAt.IsZero() {
		f["revoked_at"] = k.RevokedAt.UTC()
	}
	return f
}

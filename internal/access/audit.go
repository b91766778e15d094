package access

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"
)

const (
	// auditRetention is how long an entry is kept, about: Redis cuts in blocks.
	auditRetention = 90 * 24 * time.Hour
	// auditMaxLen is how many are kept at most, about, so that the log cannot take
	// the memory that deliveries need.
	auditMaxLen = 100_000
	// maxEvidence bounds Before and After, each, in bytes.
	maxEvidence = 16 << 10
	// maxText bounds every other field, in bytes: 200 characters of any script.
	maxText = 800
	// auditTimeout bounds one Append.
	auditTimeout = 3 * time.Second

	// scanBudget is how many entries one List looks at, and scanBatch how many it
	// asks for at once: up to 3 MB when all carry as much as they may.
	scanBudget = 2000
	scanBatch  = 100
)

// ErrCursor is returned for a cursor that List did not give.
var ErrCursor = errors.New("not a cursor of the audit log")

// Entry is one change, who made it, and why.
type Entry struct {
	// ID and At (Redis time, to the ms) are set by Append.
	ID string
	At time.Time

	Actor Identity
	// Action is the operation, such as "pauseSubscriber".
	Action string
	// Target is the id of what was changed, and Account whose it is.
	Target, Account string
	// Reason is what the actor gave, at most 200 characters.
	Reason string
	// RequestID leads to the logs.
	RequestID string
	// Before and After are JSON of at most 16 KiB each, or empty. The caller leaves
	// secrets out.
	Before, After json.RawMessage
}

// Filter says which entries are wanted. What is empty is not asked for.
type Filter struct {
	Action, Target, KeyID, Account string
}

func (f Filter) takes(e Entry) bool {
	same := func(want, is string) bool { return want == "" || want == is }
	return same(f.Action, e.Action) && same(f.Target, e.Target) &&
		same(f.KeyID, e.Actor.KeyID) && same(f.Account, e.Account)
}

// Audit is the log of changes. It is safe for concurrent use, by many processes.
type Audit struct {
	db  backend
	now func() time.Time
}

// Append writes an entry, even if ctx is done: the change was made, whether or not
// its client waited. Text beyond its bound is cut. Before or After that is too large
// or no JSON is replaced by an object that says so: the entry is worth more.
//
// It returns an error that wraps ErrUnavailable, after which the entry may be there
// all the same.
func (a *Audit) Append(ctx context.Context, e Entry) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), auditTimeout)
	defer cancel()
	oldest := strconv.FormatInt(max(a.now().Add(-auditRetention).UnixMilli(), 0), 10)
	if err := a.db.appendAudit(ctx, e.values(), oldest); err != nil {
		return fmt.Errorf("append %s to the audit log: %w", clip(e.Action), err)
	}
	return nil
}

// List reads up to limit (1 to MaxList) entries, newest first, that are older than
// the cursor before; all if it is empty. next is the cursor of the page after, empty
// at the end. It looks at 2000 entries at most, so that a page may have fewer than
// limit, even none, and a next: go on with it.
//
// Entries that are added meanwhile come before the first page. It returns ErrCursor,
// or an error that wraps ErrUnavailable.
func (a *Audit) List(ctx context.Context, f Filter, before string, limit int) (entries []Entry, next string, err error) {
	if limit < 1 || limit > MaxList {
		return nil, "", fmt.Errorf("list the audit log: limit must be 1 to %d, is %d", MaxList, limit)
	}
	at, err := streamID(before)
	if err != nil {
		return nil, "", fmt.Errorf("list the audit log: %w", err)
	}
	for looked := 0; looked < scanBudget; {
		rows, err := a.db.scanAudit(ctx, at, scanBatch)
		if err != nil {
			return nil, "", fmt.Errorf("list the audit log: %w", err)
		}
		for _, row := range rows {
			e := row.decode()
			if !f.takes(e) {
				continue
			}
			if len(entries) == limit { // one more than asked for: so there is a next page
				return entries, entries[limit-1].ID, nil
			}
			entries = append(entries, e)
		}
		if len(rows) < scanBatch {
			return entries, "", nil
		}
		looked += len(rows)
		at = rows[len(rows)-1].id
	}
	return entries, entryPrefix + at, nil
}

// An entry's id is "aud_" and the stream's, which is ms and a number within it: so
// entries of one ms have an order too. A cursor is the id of the last entry that was
// looked at.
const entryPrefix = "aud_"

var streamIDs = regexp.MustCompile(`^\d{1,15}-\d{1,15}$`)

func streamID(cursor string) (string, error) {
	if cursor == "" {
		return "", nil
	}
	id, ok := strings.CutPrefix(cursor, entryPrefix)
	if !ok || !streamIDs.MatchString(id) {
		return "", ErrCursor
	}
	return id, nil
}

// auditRow is an entry as it lies in the stream.
type auditRow struct {
	id     string
	values map[string]any
}

// values are the fields of the stream, always all and in this order: then Redis
// stores their names once for a block of entries.
func (e Entry) values() []string {
	return []string{
		"key_id", clip(e.Actor.KeyID), "key_name", clip(e.Actor.Name),
		"role", clip(string(e.Actor.Role)), "key_account", clip(e.Actor.Account),
		"action", clip(e.Action), "target", clip(e.Target), "account", clip(e.Account),
		"reason", clip(e.Reason), "request_id", clip(e.RequestID),
		"before", evidence(e.Before), "after", evidence(e.After),
	}
}

func (r auditRow) decode() Entry {
	text := func(field string) string {
		s, _ := r.values[field].(string)
		return s
	}
	raw := func(field string) json.RawMessage {
		if s := text(field); s != "" {
			return json.RawMessage(s)
		}
		return nil
	}
	ms, _, _ := strings.Cut(r.id, "-")
	at, _ := strconv.ParseInt(ms, 10, 64) // Redis makes them of digits
	return Entry{
		ID: entryPrefix + r.id, At: time.UnixMilli(at).UTC(),
		Actor:  Identity{KeyID: text("key_id"), Name: text("key_name"), Role: Role(text("role")), Account: text("key_account")},
		Action: text("action"), Target: text("target"), Account: text("account"),
		Reason: text("reason"), RequestID: text("request_id"),
		Before: raw("before"), After: raw("after"),
	}
}

// evidence is JSON that may be stored. Half of a document would be none.
func evidence(raw json.RawMessage) string {
	switch {
	case len(raw) == 0:
		return ""
	case len(raw) > maxEvidence:
		return fmt.Sprintf(`{"omitted":"too large","bytes":%d}`, len(raw))
	case !json.Valid(raw):
		return fmt.Sprintf(`{"omitted":"not JSON","bytes":%d}`, len(raw))
	}
	return string(raw)
}

// clip cuts text to maxText bytes, of whole characters.
func clip(text string) string {
	text = strings.ToValidUTF8(text, "\uFFFD")
	if len(text) <= maxText {
		return text
	}
	n := maxText
	for n > 0 && !utf8.RuneStart(text[n]) {
		n--
	}
	return text[:n]
}

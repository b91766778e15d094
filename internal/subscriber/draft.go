package subscriber

import (
	"fmt"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/fanout/fanout/internal/delivery"
	"github.com/fanout/fanout/internal/fault"
)

// Bounds of the plain fields.
const (
	maxNameLen    = 100  // characters
	maxAccountLen = 64   // bytes
	maxURLLen     = 2048 // bytes
)

// defaultAccount is for installations that need no accounts.
const defaultAccount = "default"

// Draft is what a create or a patch sets; nil is left out. What a create leaves
// out gets its default: account "default", the first class, every event type,
// delivery.DefaultPolicy, a secret made at random, not paused. Only the URL has
// none.
type Draft struct {
	// Account is 1 to 64 of A-Z a-z 0-9 . _ : - and cannot be changed later.
	Account *string `json:"account,omitempty"`
	// Name is at most 100 printable characters.
	Name *string `json:"name,omitempty"`
	// URL is at most 2048 bytes, and what else the URLPolicy asks.
	URL   *string `json:"url,omitempty"`
	Class *string `json:"class,omitempty"`
	// Filter replaces types and attributes one by one: whichever is nil stays, so
	// a patch of the attributes alone never widens the types. An empty map of
	// attributes removes them all.
	Filter *Filter      `json:"filter,omitempty"`
	Policy *PolicyPatch `json:"policy,omitempty"`
	// Headers are laid over those that there are, by name without case: a value
	// sets one, nil removes it. At most 20, of names of at most 64 bytes and printable
	// values of at most 1024, that are not the sender's own (see badHeaderName).
	Headers map[string]*string `json:"headers,omitempty"`
	// NoHeaders has a patch remove all that there are.
	NoHeaders bool `json:"-"`
	// Secret is the first secret's text, for a create alone.
	Secret *string `json:"secret,omitempty"`
	// Paused is set by a pause; false is a resume, also of one that is not paused.
	Paused *bool `json:"paused,omitempty"`
}

// rules are what a draft is judged by beyond its own bounds.
type rules struct {
	urls    URLPolicy
	classes []string // allowed; the first is the default
}

// create makes the subscriber that a draft asks for, without id, secret, times
// and version, or returns *fault.Invalid.
func (d Draft) create(r rules) (Subscriber, error) {
	var bad fault.List
	if d.URL == nil {
		bad.Addf("/url", "is required")
	}
	if d.Secret != nil {
		if err := ParseSecret(*d.Secret); err != nil {
			bad.Addf("/secret", "%s", err)
		}
	}
	s := Subscriber{
		Account: defaultAccount, Class: r.classes[0],
		Filter: Filter{Types: []string{"*"}}, Policy: delivery.DefaultPolicy(),
	}
	set(&s.Account, d.Account)
	badAccount(&bad, s.Account)
	d.merge(&s, r, &bad)
	return s, bad.Sorted().Err(judged)
}

// patch is the subscriber with the draft laid over it, or *fault.Invalid. Only what
// the draft sets is judged: a rename must not fail because the URL policy has
// become stricter since.
func (d Draft) patch(cur Subscriber, r rules) (Subscriber, error) {
	var bad fault.List
	if d.Account != nil && *d.Account != cur.Account {
		bad.Addf("/account", "cannot be changed: delete the subscriber and create it under the other account")
	}
	if d.Secret != nil {
		bad.Addf("/secret", "cannot be changed by a patch: rotate it (POST /v1/subscribers/{id}/secrets), "+
			"so that the old one goes on signing until every receiver has the new one")
	}
	s := cur
	d.merge(&s, r, &bad)
	return s, bad.Sorted().Err(judged)
}

// merge lays the fields that create and patch share over s, and judges them.
func (d Draft) merge(s *Subscriber, r rules, bad *fault.List) {
	if d.Name != nil {
		s.Name = *d.Name
		badName(bad, s.Name)
	}
	if d.URL != nil {
		s.URL = *d.URL
		badURL(bad, s.URL, r.urls)
	}
	if d.Class != nil {
		s.Class = *d.Class
		if !slices.Contains(r.classes, s.Class) {
			bad.Addf("/class", "is %q: must be one of %s", clip(s.Class), strings.Join(quoted(r.classes), ", "))
		}
	}
	if d.Filter != nil {
		f := d.Filter.clone()
		if f.Types != nil {
			s.Filter.Types = f.Types
		}
		if f.Attributes != nil {
			s.Filter.Attributes = f.Attributes
		}
		if len(s.Filter.Attributes) == 0 {
			s.Filter.Attributes = nil // as it comes back from storage
		}
		addAll(bad, "/filter", s.Filter.Validate())
	}
	if d.Policy != nil {
		s.Policy = d.Policy.Over(s.Policy)
		addAll(bad, "/policy", s.Policy.Validate())
	}
	if d.NoHeaders {
		s.Headers = nil
	}
	s.Headers = s.Headers.merge(d.Headers, bad)
	set(&s.Paused, d.Paused)
}

func badAccount(bad *fault.List, account string) {
	ok := account != "" && len(account) <= maxAccountLen && !strings.ContainsFunc(account, func(r rune) bool {
		return notInType(r) && (r < 'A' || r > 'Z') && r != '.' && r != ':'
	})
	if !ok {
		bad.Addf("/account", "must be 1 to %d characters of A-Z a-z 0-9 . _ : -", maxAccountLen)
	}
}

func badName(bad *fault.List, name string) {
	if !utf8.ValidString(name) {
		bad.Addf("/name", "is not valid UTF-8")
		return
	}
	if n := utf8.RuneCountInString(name); n > maxNameLen {
		bad.Addf("/name", "is %d characters long, must be at most %d", n, maxNameLen)
	}
	if i := strings.IndexFunc(name, func(r rune) bool { return !unicode.IsPrint(r) }); i >= 0 {
		r, _ := utf8.DecodeRuneInString(name[i:])
		bad.Addf("/name", "holds %U, which cannot be printed: remove control characters, line breaks and odd spaces", r)
	}
}

func badURL(bad *fault.List, url string, policy URLPolicy) {
	switch {
	case url == "":
		bad.Addf("/url", "is empty; send the address of the endpoint")
	case len(url) > maxURLLen:
		bad.Addf("/url", "must be at most %d bytes, has %d", maxURLLen, len(url))
	default:
		if err := policy.CheckURL(url); err != nil {
			bad.Addf("/url", "%s", err)
		}
	}
}

func quoted(words []string) []string {
	q := make([]string, len(words))
	for i, w := range words {
		q[i] = fmt.Sprintf("%q", w)
	}
	return q
}

// clip keeps a mistaken text from filling the answer. It cuts between characters.
func clip(s string) string {
	const most = 40
	n := 0
	for i := range s {
		if n == most {
			return s[:i] + "..."
		}
		n++
	}
	return s
}

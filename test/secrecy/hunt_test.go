//go:build secrecy

package secrecy

import (
	"bytes"
	"encoding/base64"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"html"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"
)

// hunt is the texts that must not show, and all the places to look for them in.
type hunt struct {
	mu      sync.Mutex
	secrets map[string]string // by what it is
	places  []place
}

// place is a text that the service gave of itself.
type place struct {
	where string
	text  []byte
	may   []string // the secrets that it may show, by what they are
}

// secret has one more text not show anywhere, and gives it back.
func (h *hunt) secret(what, text string) string {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.secrets == nil {
		h.secrets = map[string]string{}
	}
	if old, there := h.secrets[what]; there && old != text {
		what += fmt.Sprint(" no. ", len(h.secrets))
	}
	h.secrets[what] = text
	return text
}

// look has one more place looked into. may names what of it that place may show.
func (h *hunt) look(where string, text []byte, may ...string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.places = append(h.places, place{where, bytes.Clone(text), may})
}

// formsOf are how a text may show: as it is, and as somebody may have escaped or
// encoded it on the way, as a part of something longer.
func formsOf(text string) map[string]string {
	forms := map[string]string{
		"plain": text, "query-escaped": url.QueryEscape(text), "path-escaped": url.PathEscape(text),
		"HTML-escaped": html.EscapeString(text), "in hex": hex.EncodeToString([]byte(text)),
	}
	// In base64 a text looks different by where it begins. What is left of it without
	// the letters that its neighbours have a part in is the same each time.
	for shift := range 3 {
		padded := append(make([]byte, shift), text...)
		padded = padded[:len(padded)/3*3]
		for name, enc := range map[string]*base64.Encoding{"base64": base64.RawStdEncoding, "base64url": base64.RawURLEncoding} {
			forms[fmt.Sprint(name, " at ", shift)] = enc.EncodeToString(padded)[(shift*8+5)/6:]
		}
	}
	return forms
}

// unescape undoes one layer of the escapes of JSON and of Go.
var unescape = strings.NewReplacer(`\\`, `\`, `\"`, `"`, `\/`, `/`, `\u003c`, "<", `\u003e`, ">", `\u0026`, "&", `\u0027`, "'")

// layers are a text, and what it says with up to three layers of escapes fewer.
func layers(text []byte) (all [4]string) {
	all[0] = string(text)
	for i := range len(all) - 1 {
		all[i+1] = unescape.Replace(all[i])
	}
	return all
}

// trail is what texts are searched by: every form of every secret, by its beginning.
// To look for each of some thousands by itself would take minutes.
type trail map[uint64][]form

type form struct{ what, how, text string }

const beginning = 8 // bytes; no form is shorter

func (h *hunt) trail() trail {
	by := trail{}
	for what, secret := range h.secrets {
		for how, text := range formsOf(secret) {
			key := binary.LittleEndian.Uint64([]byte(text)[:beginning])
			by[key] = append(by[key], form{what, how, text})
		}
	}
	return by
}

// on calls found for each form in a text, and where it is.
func (by trail) on(text string, found func(form, int)) {
	if len(text) < beginning {
		return
	}
	key := binary.LittleEndian.Uint64([]byte(text[:beginning]))
	for i := 0; ; i++ {
		for _, f := range by[key] {
			if strings.HasPrefix(text[i:], f.text) {
				found(f, i)
			}
		}
		if i+beginning == len(text) {
			return
		}
		key = key>>8 | uint64(text[i+beginning])<<56
	}
}

// shows says whether a place may show a secret, or what is made of it ("x, its key").
func (p place) shows(what string) bool {
	whole, _, _ := strings.Cut(what, ", ")
	return slices.Contains(p.may, whole)
}

// findings are where a secret shows and may not.
func (h *hunt) findings() (all []string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	by := h.trail()
	seen := map[string]bool{}
	for _, p := range h.places {
		last := ""
		for _, text := range layers(p.text) {
			if text == last {
				break // nothing was escaped
			}
			last = text
			by.on(text, func(f form, at int) {
				finding := p.where + " shows " + f.what
				if !p.shows(f.what) && !seen[finding] {
					seen[finding] = true
					all = append(all, fmt.Sprintf("%s, %s: ...%q...", finding, f.how, text[max(0, at-150):min(len(text), at+len(f.text)+40)]))
				}
			})
		}
	}
	return all
}

// A hunt that finds nothing where there is something proves nothing.
func TestHuntFinds(t *testing.T) {
	t.Parallel()
	const text = `s3cr"et<&>/+ of 1 %`
	for _, shown := range []string{
		text, "x" + text + "x", url.QueryEscape(text), url.PathEscape(text), html.EscapeString(text), fmt.Sprintf("%q", text),
		fmt.Sprintf("%x", text), fmt.Sprintf("%q", fmt.Sprintf("%q", text)),
		base64.StdEncoding.EncodeToString([]byte(text)), base64.StdEncoding.EncodeToString([]byte("u:" + text)),
		base64.URLEncoding.EncodeToString([]byte("Bearer " + text + " and more")),
	} {
		for _, wrap := range []func(string) string{
			func(s string) string { return s },
			func(s string) string {
				b, err := json.Marshal(map[string]string{"a": s})
				if err != nil {
					t.Fatal(err)
				}
				return string(b)
			},
		} {
			h := &hunt{}
			h.secret("it", text)
			h.look("a log", []byte("... "+wrap(shown)+" ..."))
			h.look("the one reply", []byte(text), "it")
			if got := h.findings(); len(got) != 1 || !strings.Contains(got[0], "a log shows it") {
				t.Errorf("%q: %q", wrap(shown), got)
			}
		}
	}
	h := &hunt{}
	h.secret("it", text)
	h.look("a log", []byte("s3cr, et, 1, czNjcg=="))
	if got := h.findings(); len(got) != 0 {
		t.Errorf("found %q in what shows nothing", got)
	}
}

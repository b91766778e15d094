package secrecy

import (
	"bytes"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"html"
	"maps"
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

// showing is the first form of a text that shows in one of the layers, "" if none does.
func showing(forms map[string]string, in [4]string) (form, around string) {
	for _, text := range in {
		for _, form := range slices.Sorted(maps.Keys(forms)) {
			if i := strings.Index(text, forms[form]); i >= 0 {
				return form, text[max(0, i-150):min(len(text), i+len(forms[form])+40)]
			}
		}
	}
	return "", ""
}

// findings are where a secret shows and may not.
func (h *hunt) findings() (all []string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	forms := map[string]map[string]string{}
	for what, text := range h.secrets {
		forms[what] = formsOf(text)
	}
	seen := map[string]bool{}
	for _, p := range h.places {
		in := layers(p.text)
		for _, what := range slices.Sorted(maps.Keys(forms)) {
			if slices.Contains(p.may, what) || seen[p.where+" shows "+what] {
				continue
			}
			if form, around := showing(forms[what], in); form != "" {
				seen[p.where+" shows "+what] = true
				all = append(all, fmt.Sprintf("%s shows %s, %s: ...%q...", p.where, what, form, around))
			}
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
			func(s string) string { b, _ := json.Marshal(map[string]string{"a": s}); return string(b) },
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

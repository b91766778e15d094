package webhook

import (
	"cmp"
	"encoding/base64"
	"html"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/fanout/fanout/internal/subscriber"
)

const redacted = "[redacted]"

// What is shorter hides nothing, and would riddle the text. A segment is often a
// plain word ("hooks"), a query's value hardly ever.
const (
	minWhole   = 4 // bytes, of anything but a segment
	minSegment = 8 // bytes
)

// maxTails bounds the ends of a path that are looked for: an endpoint behind a
// router or two knows the path without its beginning.
const maxTails = 8

// scrub takes out of the words and of the excerpt what must not be kept (an
// endpoint may echo its URL, token and all, or print its secret on an error
// page), then cuts both to their bounds. req is nil if none was built; nothing
// then holds any.
func (a *Answer) scrub(req *http.Request, secrets []subscriber.Secret, headers subscriber.Headers) {
	if req != nil {
		hide := hidden(req.URL, secrets, headers)
		if a.cut {
			a.Excerpt = withoutHalf(a.Excerpt, hide)
		}
		var pairs []string // most answers echo nothing, and then a replacer costs nothing
		for _, s := range hide {
			if strings.Contains(a.Err, s) || strings.Contains(a.Excerpt, s) {
				pairs = append(pairs, s, redacted)
			}
		}
		r := strings.NewReplacer(pairs...)
		a.Err, a.Excerpt = r.Replace(a.Err), r.Replace(a.Excerpt)
	}
	a.Err = clip(strings.Map(printable, a.Err), maxErr)
	a.Excerpt = clip(a.Excerpt, maxExcerpt)
}

// hidden is every text that must not be kept, the longest first: a replacer takes
// the first that fits. Tokens stand in the path of an endpoint as often as in its
// query, so both go whole and in parts: the request URI, the path, its ends, each
// segment; the query, each value; the userinfo, though a Guard lets none through;
// the secrets; and the values of the subscriber's own headers.
func hidden(u *url.URL, secrets []subscriber.Secret, headers subscriber.Headers) []string {
	h := hider{}
	h.add(minWhole, u.RequestURI(), u.RawQuery, unescaped(u.RawQuery))
	for _, path := range []string{u.EscapedPath(), u.Path} {
		h.add(minWhole, path)
		for range maxTails {
			i := strings.IndexByte(path[min(1, len(path)):], '/')
			if i < 0 {
				break
			}
			path = path[i+1:]
			h.add(minSegment, path)
		}
	}
	for segment := range strings.SplitSeq(u.EscapedPath(), "/") {
		h.add(minSegment, segment)
		if plain, err := url.PathUnescape(segment); err == nil {
			h.add(minSegment, plain)
		}
	}
	for pair := range strings.SplitSeq(u.RawQuery, "&") {
		_, value, _ := strings.Cut(pair, "=")
		h.add(minWhole, value, unescaped(value))
	}
	if u.User != nil {
		password, _ := u.User.Password()
		h.add(minWhole, u.User.String(), u.User.Username(), password)
	}
	for _, s := range secrets {
		_, key, _ := strings.Cut(s.Value, "_")
		h.add(minWhole, s.Value, key)
	}
	for _, value := range headers {
		h.addHeader(value)
	}
	return h.longestFirst()
}

// hider gathers texts, once each.
type hider map[string]struct{}

// add takes texts of at least so many bytes, also as they stand in HTML, in JSON, and
// in a URL.
func (h hider) add(least int, texts ...string) {
	for _, s := range texts {
		if len(s) < least {
			continue
		}
		inHTML := html.EscapeString(s)
		for _, form := range []string{s, inHTML, strings.ReplaceAll(inHTML, "&#34;", "&quot;"), url.QueryEscape(s), url.PathEscape(s)} {
			h[form] = struct{}{}
		}
		h.addJSON(s)
	}
}

// addJSON takes a text as encoders of JSON write it: they differ in whether they
// escape what is not ASCII, what means something in HTML, and the slash.
func (h hider) addJSON(s string) {
	for _, quoted := range []string{strconv.Quote(s), strconv.QuoteToASCII(s)} {
		plain := quoted[1 : len(quoted)-1]
		for _, form := range []string{plain, noMarkup.Replace(plain)} {
			h[form] = struct{}{}
			h[strings.ReplaceAll(form, "/", `\/`)] = struct{}{}
		}
	}
}

// noMarkup writes what HTML would take for markup as some encoders of JSON do.
var noMarkup = strings.NewReplacer("<", `\u003c`, ">", `\u003e`, "&", `\u0026`)

// addHeader takes a header's value whole and in the parts that a receiver makes of
// it: the token after a scheme, the pairs of a cookie, and what Basic
// authentication (RFC 7617) spells in base64.
func (h hider) addHeader(value string) {
	h.add(minWhole, value)
	if scheme, text, ok := strings.Cut(value, " "); ok && strings.EqualFold(scheme, "basic") {
		if plain, err := base64.StdEncoding.DecodeString(text); err == nil {
			_, password, _ := strings.Cut(string(plain), ":")
			h.add(minWhole, string(plain), password)
		}
	}
	for part := range strings.FieldsFuncSeq(value, func(r rune) bool { return strings.ContainsRune(" \t,;", r) }) {
		_, v, _ := strings.Cut(part, "=")
		h.add(minSegment, part, v, strings.Trim(v, `"`))
	}
}

func (h hider) longestFirst() []string {
	all := make([]string, 0, len(h))
	for s := range h {
		all = append(all, s)
	}
	slices.SortFunc(all, func(a, b string) int { return cmp.Or(cmp.Compare(len(b), len(a)), cmp.Compare(a, b)) })
	return all
}

// unescaped is s with its percent-encoding undone, "" if that cannot be.
func unescaped(s string) string {
	plain, err := url.QueryUnescape(s)
	if err != nil {
		return ""
	}
	return plain
}

// withoutHalf takes the beginning of a hidden text off the end of a cut body: no
// replacer would know it again.
func withoutHalf(body string, hide []string) string {
	half := 0
	for _, s := range hide {
		for n := min(len(s)-1, len(body)); n >= max(minWhole, half+1); n-- {
			if strings.HasSuffix(body, s[:n]) {
				half = n
				break
			}
		}
	}
	return body[:len(body)-half]
}

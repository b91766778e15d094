package contract

import (
	"fmt"
	"math/rand/v2"
	"net/url"
	"strconv"
	"strings"
)

// request is one as it is sent, in parts that can be left out one by one.
type request struct {
	op      *operation // that it was drawn for
	method  string
	path    string // escaped
	query   []string
	headers [][2]string
	body    *value // or
	text    string // a body that is no JSON
	chunked bool   // sent without its length

	caller caller
	// whole says that nothing of it was broken on purpose.
	whole bool
	broke []string // what was
}

// caller is who asks.
type caller struct {
	role    string // "" for nobody
	account string
	auth    string // the header; "" for none
}

func (r *request) payload() string {
	if r.body != nil {
		return r.body.String()
	}
	return r.text
}

func (r *request) target() string {
	if len(r.query) == 0 {
		return r.path
	}
	return r.path + "?" + strings.Join(r.query, "&")
}

// String is what a person needs to see of it; tokens are those of a test.
func (r *request) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s %s   (drawn for %s, as %s %s", r.method, r.target(), r.op.id, orNobody(r.caller.role), r.caller.account)
	if len(r.broke) > 0 {
		fmt.Fprintf(&b, ", with %s", strings.Join(r.broke, ", "))
	}
	b.WriteString(")\n")
	for _, h := range r.headers {
		fmt.Fprintf(&b, "%s: %q\n", h[0], h[1])
	}
	body := r.payload()
	const most = 4000
	if len(body) > most {
		fmt.Fprintf(&b, "%d bytes that begin with %q\n", len(body), body[:most])
	} else if body != "" {
		fmt.Fprintf(&b, "%q\n", body)
	}
	return b.String()
}

func orNobody(role string) string {
	if role == "" {
		return "nobody"
	}
	return role
}

// request draws the nth request of a seed. It depends on both, and on what is there
// when it is drawn.
func (w *world) request(seed, n uint64) *request {
	d := &drawer{Rand: rand.New(rand.NewPCG(seed, n)), doc: w.doc}
	d.known = func(name string) (*value, bool) { return w.known(d, name) }
	r := &request{op: w.pick(d), whole: true}
	r.method, r.caller = r.op.method, w.caller(d, r.op)
	broken := func(how string) { r.whole, r.broke = false, append(r.broke, how) }
	r.path = w.path(d, r.op, broken)
	for _, p := range r.op.params {
		w.param(d, r, p, broken)
	}
	r.draws(d, broken)
	// What no operation has.
	if d.chance(0.05) {
		r.method = pick(d, []string{"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE", "PROPFIND", "get"})
		broken("another method")
	}
	if d.chance(0.04) {
		r.query = append(r.query, pick(d, []string{"x=1", "limit=5", "limit", "%zz=1", "a;b=1", "cursor=%00", "=", "&&", "wait=0", "state=pending", "é=1"}))
		broken("a parameter too many")
	}
	r.oddHeaders(d, broken)
	return r
}

// draws adds a body where there is one to be, and sometimes where there is not.
func (r *request) draws(d *drawer, broken func(string)) {
	if r.op.body == nil {
		if d.chance(0.05) {
			r.body = d.anything(3)
			broken("a body")
			r.headers = append(r.headers, [2]string{"Content-Type", "application/json"})
		}
		return
	}
	if !r.op.required && d.chance(0.4) {
		return
	}
	r.body = d.draw("", r.op.body)
	media := "application/json"
	if d.chance(0.35) {
		for range 1 + d.IntN(2) {
			broken(d.spoil(r.body))
		}
	}
	switch {
	case d.chance(0.06):
		r.text, r.body = d.spoilText(r.body.String()), nil
		broken("broken text")
	case d.chance(0.01):
		r.text, r.body = `{"data":"`+strings.Repeat("x", pick(d, []int{327_671, 327_680, 327_681, 1 << 20}))+`"}`, nil
		broken("a large body")
	}
	if d.chance(0.05) {
		media = pick(d, []string{
			"", "text/plain", "application/x-www-form-urlencoded", "application/json; charset=utf-8", "application/json;charset=latin1",
			"application/problem+json", "multipart/form-data", "APPLICATION/JSON", "application/json; q", "json", ";", "*/*",
		})
		broken("the media type " + strconv.Quote(media))
	}
	if media != "" {
		r.headers = append(r.headers, [2]string{"Content-Type", media})
	}
	r.chunked = d.chance(0.1)
}

// oddHeaders adds what clients and proxies send, wanted or not.
func (r *request) oddHeaders(d *drawer, broken func(string)) {
	for _, odd := range [][2]string{
		{"Content-Encoding", "gzip"},
		{"Origin", "https://elsewhere.example"},
		{"Sec-Fetch-Site", "cross-site"},
		{"Fanout-Reason", strings.Repeat("r", 201)},
		{"Fanout-Reason", " "},
		{"Fanout-Reason", "caf\xe9"},
		{"If-Match", `W/"1"`},
		{"If-Match", `"99", *, nonsense`},
		{"Expect", "100-continue"},
		{"X-Forwarded-Host", "elsewhere.example"},
		{"X-Http-Method-Override", "DELETE"},
	} {
		if d.chance(0.008) {
			r.headers = append(r.headers, odd)
			broken(odd[0])
		}
	}
	for _, harmless := range [][2]string{
		{"X-Request-Id", "a b\tc"},
		{"X-Request-Id", strings.Repeat("q", 65)},
		{"Traceparent", "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"},
		{"Traceparent", "nonsense"},
		{"Tracestate", strings.Repeat("a=b,", 100)},
		{"Accept", "application/xml"},
		{"Accept", "application/openmetrics-text; version=1.0.0"},
		{"If-None-Match", "*"},
		{"Range", "bytes=5-1"},
		{"If-Modified-Since", "yesterday"},
		{"Accept-Encoding", "br, gzip"},
	} {
		if d.chance(0.02) {
			r.headers = append(r.headers, harmless)
		}
	}
}

// path fills in the parameters of a path.
func (w *world) path(d *drawer, op *operation, broken func(string)) string {
	path := op.path
	for _, p := range op.params {
		if p["in"] != "path" {
			continue
		}
		name, schema := p["name"].(string), p["schema"].(object)
		v := w.text(d.draw(name, schema))
		if d.chance(0.06) {
			v = pick(d, []string{
				"%2e%2e", "..", ".", "a%2Fb", "%00", "%0d%0aX-Y:z", "%FF", strings.Repeat("x", 65), strings.Repeat("y", 3000), "é", "a%20b",
				"sub_", "dlv_", "*", "{}", "self", "batch", "%25", "~", ";x", "a,b",
			})
			broken("a path of another form")
			path = strings.Replace(path, "{"+name+"}", v, 1)
			continue
		}
		path = strings.Replace(path, "{"+name+"}", url.PathEscape(v), 1)
	}
	if d.chance(0.02) {
		path = pick(d, []string{path + "/", "/" + path, path + "/x", strings.ToUpper(path), "/v1", "/v2/events", "/favicon.ico", "/oncall/", path + "%20"})
		broken("another path")
	}
	return path
}

// param adds a query parameter or a header of the operation.
func (w *world) param(d *drawer, r *request, p object, broken func(string)) {
	name, in := p["name"].(string), p["in"]
	needed := r.op.id == "listDeadLetters" && name == "subscriber_id" && r.caller.role == "subscriber"
	if in == "path" || !needed && !d.chance(0.3) {
		return
	}
	v := w.text(d.draw(name, p["schema"].(object)))
	if d.chance(0.15) {
		v = pick(d, []string{
			"", "0", "-1", "201", "1e2", "true", "1.5", "9223372036854775808", "null", "a b", "é", "\xff", "x\x00y", strings.Repeat("z", 300),
			"[1]", "1,2", " 1", "+1", "0x1", "%", "MTo", "bm90aGluZw",
		})
		broken("another " + name)
	}
	if in == "header" {
		if clean := printable(v); clean != "" {
			r.headers = append(r.headers, [2]string{name, clean})
		}
		return
	}
	pair := name + "=" + url.QueryEscape(v)
	r.query = append(r.query, pair)
	if d.chance(0.02) {
		r.query = append(r.query, pair)
		broken("a parameter twice")
	}
}

// printable leaves what net/http's client can send in a header.
func printable(s string) string {
	return strings.Map(func(c rune) rune {
		if c < ' ' || c == 0x7f {
			return -1
		}
		return c
	}, s)
}

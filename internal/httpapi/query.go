package httpapi

import (
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"
)

// maxParameter bounds a parameter's name as it is told back, in characters.
const maxParameter = 64

// knownQuery refuses a query that would be dropped in part: a name that the
// operation has not, one given twice, and text that is no query at all, of which
// net/url keeps what it can in silence.
func (s *server) knownQuery(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if err := checkQuery(r); err != nil {
			s.fail(w, r, err)
			return
		}
		next.ServeHTTP(w, r)
	})
}

func checkQuery(r *http.Request) error {
	if r.URL.RawQuery == "" {
		return nil
	}
	takes := operationOf(r).takes
	f := fail(ProblemCodeInvalidParameter, "A parameter cannot be used; see errors.")
	seen := map[string]bool{}
	for pair := range strings.SplitSeq(r.URL.RawQuery, "&") {
		if pair == "" {
			continue
		}
		key, value, _ := strings.Cut(pair, "=")
		name, err := url.QueryUnescape(key)
		if err != nil {
			name = key
		} else {
			_, err = url.QueryUnescape(value)
		}
		var detail string
		switch {
		case strings.Contains(pair, ";"):
			detail = "holds a semicolon, which separates nothing: write & between parameters, and %3B for a semicolon"
		case err != nil:
			detail = "is not percent-encoded: write %25 for a percent sign"
		case takes[name] == "":
			detail = "is not a parameter of this request, which takes " + all(takes)
		case seen[name]:
			detail = "is given more than once; send it once"
		default:
			seen[name] = true
			continue
		}
		f.fields = append(f.fields, FieldProblem{Parameter: clip(strings.ToValidUTF8(name, "\uFFFD"), maxParameter), Detail: detail})
	}
	if len(f.fields) == 0 {
		return nil
	}
	return f
}

// all names parameters in a sentence.
func all(takes map[string]string) string {
	if len(takes) == 0 {
		return "none"
	}
	names := slices.Sorted(maps.Keys(takes))
	last := len(names) - 1
	if last == 0 {
		return names[0]
	}
	return strings.Join(names[:last], ", ") + " and " + names[last]
}

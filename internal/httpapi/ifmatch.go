package httpapi

import (
	"net/http"
	"slices"
	"strconv"
	"strings"

	"github.com/fanout/fanout/internal/subscriber"
)

const ifMatchHeader = "If-Match"

// anyVersion is the store's word for a change without If-Match.
const anyVersion = -1

func etag(version int64) string { return `"` + strconv.FormatInt(version, 10) + `"` }

// condition is what If-Match asks for. The zero value asks for nothing.
type condition struct {
	given    bool
	versions []int64 // any one of them; none means that no version will do
}

// ifMatch reads the versions that a change may be based on (RFC 9110, 13.1.1): one
// tag or a list. "*" asks only that the subscriber is there, as any change does. A
// weak tag never matches, nor does one that was never given out.
func ifMatch(r *http.Request) condition {
	lines, given := r.Header[ifMatchHeader]
	header := strings.Join(lines, ",")
	if !given || strings.TrimSpace(header) == "*" {
		return condition{}
	}
	c := condition{given: true}
	for tag := range strings.SplitSeq(header, ",") { // a comma is in none of ours
		tag = strings.Trim(tag, " \t")
		version, err := strconv.ParseInt(strings.Trim(tag, `"`), 10, 64)
		if err == nil && version >= 0 && etag(version) == tag {
			c.versions = append(c.versions, version)
		}
	}
	return c
}

// atVersion is the version to change a subscriber at. Only one of a list can be
// handed to the store, which compares and writes in one step: the current one.
func (c condition) atVersion(now subscriber.Subscriber) (int64, error) {
	switch {
	case !c.given:
		return anyVersion, nil
	case len(c.versions) == 1:
		return c.versions[0], nil
	case !slices.Contains(c.versions, now.Version):
		return 0, preconditionFailed(nil)
	}
	return now.Version, nil
}

func preconditionFailed(cause error) error {
	return &failure{
		code: ProblemCodePreconditionFailed, cause: cause,
		detail: "The subscriber is not at a version of If-Match. Get it, look, and send its ETag as it came.",
	}
}

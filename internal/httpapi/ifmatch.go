package httpapi

import (
	"net/http"
	"regexp"
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

// entityTag is one of RFC 9110 (8.8.3); what is between the quotes may hold commas. Tags
// are separated by commas, and a list may have empty places (5.6.1).
var (
	entityTag = `(?:W/)?"[\x21\x23-\x7e\x80-\xff]*"`
	tagList   = regexp.MustCompile(`^[ \t,]*` + entityTag + `(?:[ \t]*,(?:[ \t]*` + entityTag + `)?)*[ \t]*$`)
	tags      = regexp.MustCompile(entityTag)
)

// ifMatch reads the versions that a change may be based on (RFC 9110, 13.1.1): one
// tag or a list. "*" asks only that the subscriber is there, as any change does. A
// weak tag never matches, nor does one that was never given out. What is no tag at all
// can have come of no answer, and is refused.
func ifMatch(r *http.Request) (condition, error) {
	lines, given := r.Header[ifMatchHeader]
	header := strings.Join(lines, ",")
	if !given || strings.TrimSpace(header) == "*" {
		return condition{}, nil
	}
	if !tagList.MatchString(header) {
		return condition{}, badParameter(ProblemCodeInvalidParameter, ifMatchHeader,
			`must be an ETag as it came, in double quotes, such as "3", or several with commas between; or *`)
	}
	c := condition{given: true}
	for _, tag := range tags.FindAllString(header, -1) {
		version, err := strconv.ParseInt(strings.Trim(tag, `"`), 10, 64)
		if err == nil && version >= 0 && etag(version) == tag {
			c.versions = append(c.versions, version)
		}
	}
	return c, nil
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

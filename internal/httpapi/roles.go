package httpapi

import (
	"net/http"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/fanout/fanout/internal/access"
)

// everyone stands for all roles.
var everyone = access.Roles()

// onCall reads what concerns all accounts.
var onCall = []access.Role{access.Viewer, access.Operator}

// roles says who may call which operation, beside admin, who may call all. An
// operation that stands here with nil asks for no key; one that does not stand here
// is refused to everyone. It is x-roles of the contract in Go: a test holds the two
// equal, so that neither can be changed alone.
var roles = map[string][]access.Role{
	"postEvent":      {access.Producer},
	"postEventBatch": {access.Producer},
	"getEvent":       {access.Producer, access.Subscriber, access.Viewer, access.Operator},

	"listDeliveries":  {access.Producer, access.Subscriber, access.Viewer, access.Operator},
	"getDelivery":     {access.Producer, access.Subscriber, access.Viewer, access.Operator},
	"retryDelivery":   {access.Subscriber, access.Operator},
	"cancelDelivery":  {access.Subscriber, access.Operator},
	"listDeadLetters": {access.Subscriber, access.Viewer, access.Operator},
	"getDeadLetter":   {access.Subscriber, access.Viewer, access.Operator},

	"discardDeadLetters": {access.Operator},

	"createRedrive": {access.Operator}, "approveRedrive": {access.Operator}, "pauseRedrive": {access.Operator},
	"resumeRedrive": {access.Operator}, "abortRedrive": {access.Operator},
	"listRedrives": onCall, "getRedrive": onCall,

	"createSubscriber":   {access.Subscriber},
	"listSubscribers":    {access.Subscriber, access.Viewer, access.Operator},
	"getSubscriber":      {access.Subscriber, access.Viewer, access.Operator},
	"patchSubscriber":    {access.Subscriber},
	"deleteSubscriber":   {access.Subscriber},
	"pauseSubscriber":    {access.Subscriber, access.Operator},
	"resumeSubscriber":   {access.Subscriber, access.Operator},
	"rotateSecret":       {access.Subscriber},
	"testSubscriber":     {access.Subscriber},
	"previewSchedule":    {access.Subscriber, access.Viewer, access.Operator},
	"getSubscriberStats": {access.Subscriber, access.Viewer, access.Operator},

	"createKey": {}, "listKeys": {}, "getKey": {}, "revokeKey": {},
	"getSelf": everyone,

	"listAudit": onCall,
	"getOnCall": onCall, "getOnCallPage": onCall, "streamOnCall": onCall, "getMetrics": onCall,
	"getOpenAPI": everyone, "getDocs": everyone,

	"getRoot": nil, "getHealth": nil, "getReady": nil, "getOnCallFile": nil,
}

// allowed refuses what is not for the caller's role, and a reason that cannot go
// into the audit, before anything is done. It puts the caller into the context here
// and not in authenticate: a request that is copied before it is routed would keep its
// pattern from the span around it.
func (s *server) allowed(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		err := checkRole(r)
		if err == nil {
			err = checkReason(r)
		}
		if err != nil {
			s.fail(w, r, err)
			return
		}
		next.ServeHTTP(w, r.WithContext(access.With(r.Context(), noteOf(r).who)))
	})
}

func checkRole(r *http.Request) error {
	op := operationOf(r)
	may, known := roles[op.id]
	role := noteOf(r).who.Role
	switch {
	case known && may == nil, known && role == access.Admin, slices.Contains(may, role):
		return nil
	}
	return fail(ProblemCodeForbidden, "Your key has the role %s. This is for %s.", role, oneOf(append(slices.Clone(may), access.Admin)))
}

// oneOf names roles in a sentence.
func oneOf(list []access.Role) string {
	words := make([]string, len(list))
	for i, role := range list {
		words[i] = string(role)
	}
	if len(words) == 1 {
		return words[0]
	}
	return strings.Join(words[:len(words)-1], ", ") + " or " + words[len(words)-1]
}

// reasonHeader says why something is changed, for the audit.
const reasonHeader = "Fanout-Reason"

const maxReason = 200 // characters

func checkReason(r *http.Request) error {
	lines := r.Header.Values(reasonHeader)
	if len(lines) > 1 {
		return badParameter(ProblemCodeInvalidParameter, reasonHeader, "is given more than once; send it once")
	}
	if len(lines) == 1 {
		if bad := unusableReason(lines[0]); bad != "" {
			return badParameter(ProblemCodeInvalidParameter, reasonHeader, bad)
		}
	}
	return nil
}

// unusableReason says what is wrong with a reason, "" if nothing is.
func unusableReason(reason string) string {
	switch {
	case strings.TrimSpace(reason) == "":
		return "is empty; say why, or leave it out"
	case !utf8.ValidString(reason):
		return "is not valid UTF-8"
	case utf8.RuneCountInString(reason) > maxReason:
		return "has more than 200 characters; say it shorter"
	case strings.ContainsFunc(reason, func(c rune) bool { return !unicode.IsPrint(c) }):
		return "holds a character that cannot be printed; remove control characters, line breaks and odd spaces"
	}
	return ""
}

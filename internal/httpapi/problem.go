package httpapi

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"strconv"
	"time"

	"github.com/fanout/fanout/internal/access"
	"github.com/fanout/fanout/internal/delivery"
	"github.com/fanout/fanout/internal/fault"
	"github.com/fanout/fanout/internal/ingest"
	"github.com/fanout/fanout/internal/schedule"
	"github.com/fanout/fanout/internal/subscriber"
)

// problemPrefix and a code make a problem's type. A URN, because a type must never
// change and a host may.
const problemPrefix = "urn:fanout:problem:"

// How long a client is asked to wait. A Redis that fails over is back in seconds;
// a full one needs retention, or a person.
const (
	retryUnavailable = 2 * time.Second
	retryFull        = 10 * time.Second
)

// Bounds of what is told. A request's own text (a field's name, a value) may be
// repeated to it, but not at any length.
const (
	maxErrors  = 100
	maxPointer = 512  // characters
	maxDetail  = 1024 // characters
)

// kinds says what each code means, once for all.
var kinds = map[ProblemCode]struct {
	status int
	title  string
}{
	ProblemCodeInvalidJSON:          {http.StatusBadRequest, "Not readable as JSON"},
	ProblemCodeInvalidUTF8:          {http.StatusBadRequest, "Not valid UTF-8"},
	ProblemCodeInvalidField:         {http.StatusBadRequest, "Unusable field"},
	ProblemCodeInvalidParameter:     {http.StatusBadRequest, "Unusable parameter"},
	ProblemCodeInvalidCursor:        {http.StatusBadRequest, "Unusable cursor"},
	ProblemCodeInvalidRequest:       {http.StatusUnprocessableEntity, "A rule is broken"},
	ProblemCodeMaxFanoutExceeded:    {http.StatusUnprocessableEntity, "Too many subscribers match"},
	ProblemCodeUnauthenticated:      {http.StatusUnauthorized, "No good key"},
	ProblemCodeForbidden:            {http.StatusForbidden, "Not for this role"},
	ProblemCodeRateLimited:          {http.StatusTooManyRequests, "Too many requests"},
	ProblemCodeNotFound:             {http.StatusNotFound, "Not found"},
	ProblemCodeCrossOriginRefused:   {http.StatusForbidden, "Sent by another site's page"},
	ProblemCodeHostNotAllowed:       {http.StatusMisdirectedRequest, "Not this server's host"},
	ProblemCodeMethodNotAllowed:     {http.StatusMethodNotAllowed, "Method not allowed"},
	ProblemCodeEventConflict:        {http.StatusConflict, "Event id already used"},
	ProblemCodeVersionConflict:      {http.StatusConflict, "Changed at the same moment"},
	ProblemCodeNotScheduled:         {http.StatusConflict, "Not scheduled"},
	ProblemCodeAlreadyFinal:         {http.StatusConflict, "Already final"},
	ProblemCodeRedriveState:         {http.StatusConflict, "The redrive is in another state"},
	ProblemCodeNotDead:              {http.StatusConflict, "No dead letter"},
	ProblemCodeTooManyRedrives:      {http.StatusConflict, "Too many redrives"},
	ProblemCodeTooManySecrets:       {http.StatusConflict, "Too many secrets"},
	ProblemCodePreconditionFailed:   {http.StatusPreconditionFailed, "Changed meanwhile"},
	ProblemCodeBodyTooLarge:         {http.StatusRequestEntityTooLarge, "Body too large"},
	ProblemCodeRequestTimeout:       {http.StatusRequestTimeout, "Body too slow"},
	ProblemCodeUnsupportedMediaType: {http.StatusUnsupportedMediaType, "Unsupported media type or encoding"},
	ProblemCodeInternal:             {http.StatusInternalServerError, "Internal error"},
	ProblemCodeUnavailable:          {http.StatusServiceUnavailable, "Unavailable for now"},
	ProblemCodeStorageFull:          {http.StatusServiceUnavailable, "Out of storage"},
}

// failure is an error that knows what the client is to be told.
type failure struct {
	code   ProblemCode
	detail string
	fields []FieldProblem
	// retryAfter is sent if it is set.
	retryAfter time.Duration
	// cause is for the log alone.
	cause error
}

func (f *failure) Error() string {
	if f.cause != nil {
		return f.cause.Error()
	}
	return f.detail
}

func (f *failure) Unwrap() error { return f.cause }

func fail(code ProblemCode, format string, a ...any) *failure {
	return &failure{code: code, detail: fmt.Sprintf(format, a...)}
}

// badParameter is about a query parameter or a header.
func badParameter(code ProblemCode, name, detail string) *failure {
	return &failure{
		code: code, detail: "A parameter cannot be used; see errors.",
		fields: []FieldProblem{{Parameter: name, Detail: detail}},
	}
}

// badField is about a part of the body, named by its JSON pointer.
func badField(pointer, detail string) *failure {
	return &failure{
		code: ProblemCodeInvalidField, detail: "A field cannot be used; see errors.",
		fields: []FieldProblem{{Pointer: &pointer, Detail: detail}},
	}
}

// invalid is about a part of the body that reads well and breaks a rule.
func invalid(pointer, detail string) *failure {
	return &failure{
		code: ProblemCodeInvalidRequest, detail: "Nothing was stored or changed; errors says what to correct.",
		fields: []FieldProblem{{Pointer: &pointer, Detail: detail}},
	}
}

// failureOf says what a client is told about an error of the packages below. An
// error that it does not know is ours, and its text stays in the log.
func failureOf(r *http.Request, err error) *failure {
	var f *failure
	if errors.As(err, &f) {
		return f
	}
	f = judge(r, err)
	f.cause = err
	return f
}

func judge(r *http.Request, err error) *failure {
	var bad *fault.Invalid
	switch {
	case errors.As(err, &bad):
		f := fail(ProblemCodeInvalidRequest, "%s; errors says what to correct.", nothingDone(r, "Nothing was stored or changed"))
		f.fields = fieldsOf(bad)
		return f
	case errors.Is(err, subscriber.ErrUnreadable):
		return fail(ProblemCodeInternal, "What is stored of a subscriber is sealed, and this server cannot open it: it lacks the key, "+
			"or the text is damaged. The logs say which, under this request_id.")
	case errors.Is(err, ingest.ErrMaxFanout):
		return fail(ProblemCodeMaxFanoutExceeded, "The event matches more subscribers than the server allows; it was not stored. "+
			"Ask its operator to narrow filters or to raise the limit.")
	case errors.Is(err, schedule.ErrConflict):
		return conflictOf(err)
	case errors.Is(err, schedule.ErrVersion):
		return fail(ProblemCodeVersionConflict, "Someone else is changing the subscriber at this moment. Get it and try again.")
	case errors.Is(err, schedule.ErrNotFound), errors.Is(err, delivery.ErrBadID):
		return fail(ProblemCodeNotFound, "There is nothing with this id, or its retention has passed.")
	case errors.Is(err, schedule.ErrFull):
		f := fail(ProblemCodeStorageFull, "Redis is full. %s. Send the same %s again later.", nothingDone(r, "Nothing was stored"), noteOf(r).what())
		f.retryAfter = retryFull
		return f
	case errors.Is(err, schedule.ErrRefused):
		return unavailable("Redis is there and refuses to work for now, as while it starts, is read-only, or lacks replicas, " +
			"disk or a part of its cluster. " + nothingDone(r, "Nothing was stored") + ". Send the same " + noteOf(r).what() + " again.")
	case isUnavailable(err):
		return unavailable("Redis did not answer in time. " + repeatable(r))
	}
	return fail(ProblemCodeInternal, "Something is wrong on our side. The logs have it under this request_id.")
}

// nothingDone is what a request that failed has left behind: in a batch the words for
// the whole would read as if no event had been stored.
func nothingDone(r *http.Request, whole string) string {
	if noteOf(r).inBatch {
		return "This event was not stored"
	}
	return whole
}

// conflictOf says which fields are not those of the event that has the id, as far as
// that is known.
func conflictOf(err error) *failure {
	f := fail(ProblemCodeEventConflict, "This id was used for an event with another body. "+
		"Post the original body again, or choose a new id.")
	if differs, is := errors.AsType[*ingest.ConflictError](err); is {
		for _, name := range differs.Fields {
			pointer := "/" + name
			f.fields = append(f.fields, FieldProblem{Pointer: &pointer, Detail: "is not that of the event that has this id"})
		}
	}
	return f
}

func unavailable(detail string) *failure {
	return &failure{code: ProblemCodeUnavailable, detail: detail, retryAfter: retryUnavailable}
}

// repeatable says what a client can do about a request that may or may not have
// taken effect. Most can be sent again without harm; a handler of one that cannot
// says so in the note.
func repeatable(r *http.Request) string {
	n := noteOf(r)
	switch {
	case n.repeat != "":
		return n.repeat
	case r.Method == http.MethodGet, r.Method == http.MethodHead:
		return "Ask again; nothing was to be changed."
	case len(r.Header[ifMatchHeader]) > 0:
		return "Whether the request took effect is not known. It is safe to send the same one again; " +
			"a 412 then says that the subscriber was changed, perhaps by the first."
	}
	return "Whether the request took effect is not known. It is safe to send the same one again."
}

// isUnavailable: no answer from Redis, or none in the request's time. A context
// that the client itself cancelled counts too: it will not read what it is told.
func isUnavailable(err error) bool {
	for _, target := range []error{
		schedule.ErrUnavailable, access.ErrUnavailable, context.DeadlineExceeded, context.Canceled, os.ErrDeadlineExceeded,
	} {
		if errors.Is(err, target) {
			return true
		}
	}
	return false
}

// fail renders an error as application/problem+json (RFC 9457). It is the only
// place that does, but for the events of a batch.
func (s *server) fail(w http.ResponseWriter, r *http.Request, err error) {
	f := failureOf(r, err)
	n := noteOf(r)
	n.code, n.err = f.code, f
	h := w.Header()
	// What a handler had in mind for its answer is not true of this one.
	for _, name := range []string{"Content-Encoding", "Content-Length", "Content-Security-Policy", "Etag", "Last-Modified", "Location"} {
		h.Del(name)
	}
	if f.retryAfter > 0 { // whole seconds, and none is not one
		h.Set("Retry-After", seconds(f.retryAfter))
	}
	if f.code == ProblemCodeUnauthenticated {
		h["Www-Authenticate"] = challengesFor(r) // in Go's spelling, as it is not set by Set
	}
	p := problemOf(r, f)
	write(w, p.Status, "application/problem+json", p)
}

// seconds is a Retry-After.
func seconds(d time.Duration) string { return strconv.Itoa(int((d + time.Second - 1) / time.Second)) }

// problemOf is a failure in the words of the contract.
func problemOf(r *http.Request, f *failure) Problem {
	kind := kinds[f.code]
	p := Problem{
		Type: problemPrefix + string(f.code), Title: kind.title, Status: kind.status,
		Code: f.code, Detail: clip(f.detail, maxDetail), RequestID: noteOf(r).requestID,
	}
	for _, e := range f.fields[:min(len(f.fields), maxErrors)] {
		if e.Pointer != nil {
			pointer := clip(*e.Pointer, maxPointer)
			e.Pointer = &pointer
		}
		e.Detail = clip(e.Detail, maxDetail)
		p.Errors = append(p.Errors, e)
	}
	return p
}

// clip bounds a text to n characters.
func clip(s string, n int) string {
	if len(s) <= n {
		return s
	}
	for i := range s { // i steps from one character to the next
		n--
		if n == 0 {
			return s[:i] + "…"
		}
	}
	return s
}

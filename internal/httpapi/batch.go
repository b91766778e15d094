package httpapi

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/fanout/fanout/internal/ingest"
	"github.com/fanout/fanout/internal/schedule"
)

// Bounds of a batch. A thousand events of the usual few hundred bytes are well below
// the size, and those of 256 KiB come in by 32.
const (
	maxBatchEvents   = 1000
	maxBatchBody     = 8 << 20
	batchPath        = "/v1/events/batch"
	batchBodyTimeout = 30 * time.Second
	batchTimeout     = 30 * time.Second
)

// What to do after an event of a batch whose fate is not known.
const repeatBatchItem = "Whether this event was stored is not known. Send it again with the same id: it is stored once. " +
	"One without an id may become a second event."

// PostEventBatch accepts many events, each by itself.
func (s *server) PostEventBatch(w http.ResponseWriter, r *http.Request) {
	s.run(w, r, batchTimeout, s.postBatch)
}

func (s *server) postBatch(w http.ResponseWriter, r *http.Request) error {
	raw, err := readBatch(r)
	if err != nil {
		return err
	}
	n := noteOf(r)
	n.repeat, n.inBatch = repeatBatchItem, true
	b := batch{server: s, r: r, raw: raw, out: BatchReceipt{Results: make([]BatchResult, len(raw))}}
	var posts []ingest.Post
	var places []int // of the posts, in the batch
	for i, item := range raw {
		post, err := readItem(item)
		if err != nil {
			b.refused(r.Context(), i, err)
			continue
		}
		posts, places = append(posts, post), append(places, i)
	}
	if len(posts) > 0 {
		for j, res := range s.deps.Ingest.SubmitBatch(r.Context(), posts) {
			if res.Err != nil {
				b.refused(r.Context(), places[j], res.Err)
				continue
			}
			b.out.Results[places[j]] = accepted(places[j], res.Receipt)
		}
	}
	n.inBatch = false // from here on the whole is spoken of
	if b.away == len(raw) {
		return b.none()
	}
	if b.later > 0 {
		w.Header().Set("Retry-After", seconds(b.later))
	}
	b.count()
	return writeJSON(w, http.StatusOK, b.out)
}

// batch is what becomes of the events of one request.
type batch struct {
	*server
	r   *http.Request
	raw []jsontext.Value
	out BatchReceipt
	// away are those that were answered by a 503, of which doubtful may be stored all
	// the same; later is the longest that one of them asked to wait.
	away, doubtful int
	later          time.Duration
}

// none is the answer to a batch of which every event is a 503: so is the whole, for
// whoever looks at no more than the status.
func (b *batch) none() error {
	f := unavailable("Every event met the same trouble: Redis is away, refuses to work or is full. None of them was stored. " +
		"Send the same batch again.")
	if b.doubtful > 0 {
		f.detail = "Every event met the same trouble: Redis is away, refuses to work or is full. Whether they were stored is not known. " +
			"Send the same batch again, each event with the same id: it is stored once. One without an id may become a second event."
	} else if b.out.Results[0].Problem.Code == ProblemCodeStorageFull {
		f.code = ProblemCodeStorageFull
	}
	f.retryAfter = b.later
	return f
}

func (b *batch) count() {
	for _, res := range b.out.Results {
		switch {
		case res.Duplicate == nil:
			b.out.Refused++
		case *res.Duplicate:
			b.out.Duplicates++
		default:
			b.out.Accepted++
		}
	}
}

func accepted(i int, receipt ingest.Receipt) BatchResult {
	v := receiptView(receipt)
	return BatchResult{
		Index: i, Status: http.StatusAccepted, ID: v.ID, Deliveries: &v.Deliveries, Duplicate: &v.Duplicate, AcceptedAt: v.AcceptedAt,
	}
}

// refused is the problem that the event alone would have been answered with, its
// pointers leading into the batch.
func (b *batch) refused(ctx context.Context, i int, err error) {
	f := *failureOf(b.r, err)
	fields := make([]FieldProblem, len(f.fields))
	for j, e := range f.fields {
		if e.Pointer != nil {
			pointer := fmt.Sprintf("/events/%d%s", i, *e.Pointer)
			e.Pointer = &pointer
		}
		fields[j] = e
	}
	if len(fields) > 0 {
		f.fields = fields
	}
	p := problemOf(b.r, &f)
	if p.Status >= http.StatusInternalServerError { // the request as a whole is a 200
		b.log.WarnContext(ctx, "event of a batch not accepted", "request_id", p.RequestID,
			"index", i, "code", string(f.code), "error", clip(f.Error(), maxDetail))
	}
	if p.Status == http.StatusServiceUnavailable {
		b.away++
		b.later = max(b.later, f.retryAfter)
		if !errors.Is(err, schedule.ErrFull) && !errors.Is(err, schedule.ErrRefused) {
			b.doubtful++
		}
	}
	b.out.Results[i] = BatchResult{Index: i, Status: p.Status, ID: idOf(b.raw[i]), Problem: p}
}

// idOf is the id that an event came with, whatever else is wrong with it; "" if it has
// none, or one that is none.
func idOf(event jsontext.Value) string {
	if event.Kind() != '{' {
		return ""
	}
	id := ""
	err := eachMember(event, func(name string, value jsontext.Value) error {
		if plain, whole := unquote(jsontext.Value(name)); !whole || plain != "id" || value.Kind() != '"' {
			return nil
		}
		if id != "" {
			return errTwoIDs
		}
		id, _ = unquote(value)
		return nil
	})
	if err != nil || !usableID(id, "._:-") || id == "." || id == ".." {
		return ""
	}
	return id
}

// errTwoIDs: which of them is meant is not known.
var errTwoIDs = errors.New("two ids")

// readBatch reads the list, and nothing of its events: that the text is JSON in UTF-8
// and an object with one list in it.
func readBatch(r *http.Request) ([]jsontext.Value, error) {
	if err := jsonOnly(r); err != nil {
		return nil, err
	}
	body, err := readAll(r)
	if err != nil {
		return nil, err
	}
	if err := readable(body); err != nil {
		return nil, err
	}
	events, err := splitBatch(body)
	switch {
	case err != nil:
		return nil, err
	case events == nil:
		return nil, invalid("/events", "is missing; send 1 to 1000 events")
	case len(events) == 0:
		return nil, invalid("/events", "is empty; send 1 to 1000 events")
	case len(events) > maxBatchEvents:
		return nil, invalid("/events", fmt.Sprintf("must have 1 to %d events, has %d; send the rest in another batch", maxBatchEvents, len(events)))
	}
	return events, nil
}

// splitBatch cuts the list into its events, which stay parts of the body.
func splitBatch(body []byte) (events []jsontext.Value, err error) {
	dec := jsontext.NewDecoder(bytes.NewReader(body), jsontext.AllowDuplicateNames(true), jsontext.AllowInvalidUTF8(true))
	if err := object(dec, body, "a JSON object with events, a list"); err != nil {
		return nil, err
	}
	if _, err := dec.ReadToken(); err != nil {
		return nil, malformed(err)
	}
	for seen := false; dec.PeekKind() != '}'; seen = true {
		name, err := text(dec)
		switch {
		case err != nil:
			return nil, err
		case name != "events":
			return nil, badField(string(dec.StackPointer()), "is not a field of this request, which has events and nothing else")
		case seen:
			return nil, badField("/events", "is given twice; send it once")
		}
		if kind := dec.PeekKind(); kind != '[' {
			if _, err := dec.ReadValue(); err != nil {
				return nil, malformed(err)
			}
			return nil, badField("/events", "must be an array, is "+got(kind))
		}
		if _, err := dec.ReadToken(); err != nil {
			return nil, malformed(err)
		}
		events = []jsontext.Value{} // there, if empty
		for dec.PeekKind() != ']' {
			v, err := dec.ReadValue()
			if err != nil {
				return nil, malformed(err)
			}
			end := dec.InputOffset()
			events = append(events, jsontext.Value(body[end-int64(len(v)):end:end]))
		}
		if _, err := dec.ReadToken(); err != nil {
			return nil, malformed(err)
		}
	}
	if _, err := dec.ReadToken(); err != nil {
		return nil, malformed(err)
	}
	return events, nothingAfter(dec)
}

// readItem reads one event as strictly as a post of its own.
func readItem(raw jsontext.Value) (ingest.Post, error) {
	if kind := raw.Kind(); kind != '{' {
		return ingest.Post{}, badField("", "is "+got(kind)+"; send an object")
	}
	var in EventInput
	if _, err := decodeText(raw, &in, nil, func() error { return checkPost(in) }); err != nil {
		return ingest.Post{}, err
	}
	return postOf(in)
}

package schedule

import (
	"fmt"
	"strconv"
	"time"
)

// reply reads the flat array that a script returned, from left to right. The
// first mismatch sticks: read everything, then look at err.
type reply struct {
	op   string
	vals []any
	err  error
}

func newReply(op string, v any) *reply {
	vals, ok := v.([]any)
	r := &reply{op: op, vals: vals}
	if !ok {
		r.err = fmt.Errorf("%s: script returned %T, not an array", op, v)
	}
	return r
}

func (r *reply) more() bool { return r.err == nil && len(r.vals) > 0 }

func (r *reply) next() any {
	if len(r.vals) == 0 {
		if r.err == nil {
			r.err = fmt.Errorf("%s: script returned too little", r.op)
		}
		return nil
	}
	v := r.vals[0]
	r.vals = r.vals[1:]
	return v
}

func (r *reply) text() string {
	v := r.next()
	switch v := v.(type) {
	case string:
		return v
	case int64:
		return strconv.FormatInt(v, 10)
	}
	if r.err == nil {
		r.err = fmt.Errorf("%s: script returned %T, not text", r.op, v)
	}
	return ""
}

func (r *reply) number() int64 {
	v := r.next()
	switch v := v.(type) {
	case int64:
		return v
	case string: // a score, or a hash field
		n, err := strconv.ParseInt(v, 10, 64)
		if err == nil {
			return n
		}
	}
	if r.err == nil {
		r.err = fmt.Errorf("%s: script returned %v, not a whole number", r.op, v)
	}
	return 0
}

func (r *reply) time() time.Time { return fromMillis(r.number()) }

// list is the rest of the answer's elements as arrays of their own.
func (r *reply) list() *reply {
	sub := newReply(r.op, r.next())
	if r.err == nil {
		r.err = sub.err
	}
	return sub
}

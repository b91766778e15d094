package schedule

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
)

// oncallPrefix is where on-call keeps what was, in a slot of its own.
const oncallPrefix = "{fo:oncall}:"

// maxPoint bounds a point, in bytes, and so a ring.
const maxPoint = 8 << 10

// errPoint: there are so many classes that nobody would read a page of them either.
var errPoint = errors.New("point of the history is too long")

// Ring is a series of points at equal intervals, the oldest of which make room for the
// newest. Each has Places of at most 8 KiB.
type Ring struct {
	Name   string
	Every  time.Duration
	Places int
}

// number of the period that a time lies in.
func (r Ring) number(at time.Time) int64 { return at.UnixMilli() / r.Every.Milliseconds() }

// KeepPoint keeps a point (opaque) for the period that the time lies in, Redis time. The
// first to come writes it: however many processes sample, there is one, and a repeated
// call changes nothing.
func (e *Engine) KeepPoint(ctx context.Context, ring Ring, at time.Time, point []byte) error {
	if len(point) > maxPoint {
		return fmt.Errorf("history: %d bytes: %w", len(point), errPoint)
	}
	lasts := ring.Every * time.Duration(ring.Places)
	_, err := e.run1(ctx, e.scripts.history, oncallPrefix,
		ring.Name, ring.Places, ring.number(at), lasts.Milliseconds(), point)
	return err
}

// Points returns those of a ring that are not older than it is long, oldest first.
func (e *Engine) Points(ctx context.Context, ring Ring) ([][]byte, error) {
	var cmd *redis.MapStringStringCmd
	err := e.read(ctx, "history", func(p redis.Pipeliner) { cmd = p.HGetAll(ctx, oncallPrefix+ring.Name) })
	if err != nil {
		return nil, err
	}
	type numbered struct {
		number int64
		point  []byte
	}
	var all []numbered
	newest := int64(0)
	for _, text := range cmd.Val() {
		n, point, _ := strings.Cut(text, " ")
		number, err := strconv.ParseInt(n, 10, 64)
		if err != nil {
			return nil, fmt.Errorf("history: point %q: %w", n, err)
		}
		all = append(all, numbered{number, []byte(point)})
		newest = max(newest, number)
	}
	slices.SortFunc(all, func(a, b numbered) int { return cmp.Compare(a.number, b.number) })
	var out [][]byte
	for _, p := range all {
		if p.number > newest-int64(ring.Places) {
			out = append(out, p.point)
		}
	}
	return out, nil
}

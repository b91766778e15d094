package cli

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// manners are how a receiver behaves: well, unless it is told otherwise.
type manners struct {
	Fail       percent       `help:"How many webhooks get the bad answer, such as 30%; default all if --status or --hang is given, else none." placeholder:"PERCENT"`
	Status     int           `help:"Status of the bad answer; default 500, or 503 with --retry-after." placeholder:"STATUS"`
	Hang       bool          `help:"The bad answer is none at all: the connection is held until the sender gives up."`
	Slow       time.Duration `help:"Wait so long before every answer." placeholder:"DURATION"`
	RetryAfter time.Duration `help:"Retry-After of the bad answer, in whole seconds; it counts with 429 and 503." placeholder:"DURATION"`
}

// percent reads 30% or 0.3.
type percent float64

// UnmarshalText takes 0% to 100%, or 0 to 1.
func (p *percent) UnmarshalText(b []byte) error {
	text, whole := strings.CutSuffix(string(b), "%")
	v, err := strconv.ParseFloat(text, 64)
	if whole {
		v /= 100
	}
	if err != nil || !(v >= 0 && v <= 1) { // written so that NaN fails
		return fmt.Errorf("%q is no share: want 0%% to 100%%", b)
	}
	*p = percent(v)
	return nil
}

func (m *manners) check() error {
	switch {
	case m.Status != 0 && (m.Status < 200 || m.Status > 599):
		return usage("--status must be from 200 to 599")
	case m.Hang && (m.Status != 0 || m.RetryAfter != 0):
		return usage("--hang answers nothing: it goes without --status and --retry-after")
	case m.Slow < 0, m.RetryAfter < 0:
		return usage("--slow and --retry-after must not be negative")
	case m.RetryAfter%time.Second != 0:
		return usage("--retry-after must be whole seconds")
	}
	if m.Fail == 0 && (m.Status != 0 || m.Hang || m.RetryAfter != 0) {
		m.Fail = 1
	}
	if m.Status == 0 {
		m.Status = http.StatusInternalServerError
		if m.RetryAfter > 0 {
			m.Status = http.StatusServiceUnavailable
		}
	}
	return nil
}

// answer is what one webhook gets; status 0 is none.
type answer struct {
	status int
	bad    bool
}

func (m *manners) draw() answer {
	if rand.Float64() >= float64(m.Fail) { //nolint:gosec // a die
		return answer{status: http.StatusOK}
	}
	if m.Hang {
		return answer{bad: true}
	}
	return answer{status: m.Status, bad: true}
}

// give answers, or does not.
func (m *manners) give(ctx context.Context, w http.ResponseWriter, a answer) {
	if m.Slow > 0 {
		t := time.NewTimer(m.Slow)
		defer t.Stop()
		select {
		case <-t.C:
		case <-ctx.Done():
			panic(http.ErrAbortHandler) // nobody waits for it any more
		}
	}
	if a.status == 0 {
		<-ctx.Done()
		panic(http.ErrAbortHandler)
	}
	if a.bad && m.RetryAfter > 0 {
		w.Header().Set("Retry-After", strconv.Itoa(int(m.RetryAfter/time.Second)))
	}
	w.WriteHeader(a.status)
}

// String says what is answered.
func (a answer) String() string {
	if a.status == 0 {
		return "nothing: it hangs"
	}
	return strconv.Itoa(a.status)
}

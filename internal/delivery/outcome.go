package delivery

import "strconv"

// Outcome is what one attempt came to. It is a bounded set, and also the label
// of the attempts metric.
type Outcome string

// Every outcome. See Facts for what each leads to.
const (
	OK             Outcome = "delivered" // 2xx
	Timeout        Outcome = "timeout"
	Connect        Outcome = "connect"
	Reset          Outcome = "reset"
	DNS            Outcome = "dns"
	TLS            Outcome = "tls"
	HTTP408        Outcome = "http_408"
	HTTP409        Outcome = "http_409"
	HTTP423        Outcome = "http_423"
	HTTP425        Outcome = "http_425"
	HTTP429        Outcome = "http_429"
	HTTP5xx        Outcome = "http_5xx"
	LeaseLost      Outcome = "lease_lost"
	HTTP3xx        Outcome = "http_3xx"
	HTTP400        Outcome = "http_400"
	HTTP401        Outcome = "http_401"
	HTTP403        Outcome = "http_403"
	HTTP404        Outcome = "http_404"
	HTTP405        Outcome = "http_405"
	HTTP413        Outcome = "http_413"
	HTTP422        Outcome = "http_422"
	HTTP4xx        Outcome = "http_4xx" // every other 4xx
	Gone           Outcome = "gone"     // 410
	BlockedAddress Outcome = "blocked_address"
	BadRequest     Outcome = "bad_request"     // the request cannot be built or signed
	PayloadMissing Outcome = "payload_missing" // the stored body is not there
	Expired        Outcome = "expired"
	Exhausted      Outcome = "exhausted"
	HeldFull       Outcome = "held_full"
	Unknown        Outcome = "unknown" // anything else: transient within the budget
)

// Blame says whom an outcome speaks of. Only Endpoint moves a subscriber's
// breaker and cap.
type Blame string

// The blames.
const (
	NoBlame  Blame = "none"
	Endpoint Blame = "endpoint"
	Payload  Blame = "payload"
	Us       Blame = "us"
)

// Kind says what an outcome leads to.
type Kind string

// The kinds.
const (
	Success   Kind = "success"
	Transient Kind = "transient" // another attempt, while budget and age last
	Terminal  Kind = "terminal"  // dead at once
)

// Fact is what an outcome means.
type Fact struct {
	Kind  Kind
	Blame Blame
}

// Facts holds every outcome. An answer such as 404 is terminal and yet blamed on
// the endpoint: a deploy that answers 404 must open the breaker rather than
// dead-letter its traffic. expired, exhausted and held_full are reasons of a
// dead letter, never of an attempt; their blame is that of the last outcome.
var Facts = map[Outcome]Fact{
	OK:             {Success, NoBlame},
	Timeout:        {Transient, Endpoint},
	Connect:        {Transient, Endpoint},
	Reset:          {Transient, Endpoint},
	DNS:            {Transient, Endpoint},
	TLS:            {Transient, Endpoint},
	HTTP408:        {Transient, Endpoint},
	HTTP409:        {Transient, Endpoint},
	HTTP423:        {Transient, Endpoint},
	HTTP425:        {Transient, Endpoint},
	HTTP429:        {Transient, Endpoint},
	HTTP5xx:        {Transient, Endpoint},
	LeaseLost:      {Transient, Us},
	HTTP3xx:        {Terminal, Endpoint},
	HTTP401:        {Terminal, Endpoint},
	HTTP403:        {Terminal, Endpoint},
	HTTP404:        {Terminal, Endpoint},
	HTTP405:        {Terminal, Endpoint},
	BlockedAddress: {Terminal, Endpoint},
	Gone:           {Terminal, Endpoint},
	HTTP400:        {Terminal, Payload},
	HTTP413:        {Terminal, Payload},
	HTTP422:        {Terminal, Payload},
	HTTP4xx:        {Terminal, Payload},
	BadRequest:     {Terminal, Us},
	PayloadMissing: {Terminal, Us},
	Expired:        {Terminal, NoBlame},
	Exhausted:      {Terminal, NoBlame},
	HeldFull:       {Terminal, NoBlame},
	Unknown:        {Transient, Endpoint},
}

// Kind is what the outcome leads to; an outcome that nobody knows is transient,
// so that it ends by its budget and never by a guess.
func (o Outcome) Kind() Kind {
	if f, ok := Facts[o]; ok {
		return f.Kind
	}
	return Transient
}

// Blame is whom the outcome speaks of.
func (o Outcome) Blame() Blame {
	if f, ok := Facts[o]; ok {
		return f.Blame
	}
	return Endpoint
}

// Classify names what an HTTP status means. It is total: any number has an
// outcome. A status outside 100-599, or a final 1xx, is Unknown.
func Classify(status int) Outcome {
	switch status {
	case 400, 401, 403, 404, 405, 408, 409, 413, 422, 423, 425, 429:
		return Outcome("http_" + strconv.Itoa(status))
	case 410:
		return Gone
	}
	switch status / 100 {
	case 2:
		return OK
	case 3:
		return HTTP3xx
	case 4:
		return HTTP4xx
	case 5:
		return HTTP5xx
	}
	return Unknown
}

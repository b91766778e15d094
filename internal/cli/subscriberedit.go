package cli

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"reflect"
	"strings"
	"time"

	"github.com/fanout/fanout/client"
)

// draft is what create and patch take: a file, and flags that go before it.
type draft struct {
	File       string            `help:"JSON of the fields as the API takes them (headers and all), - for stdin; flags go before it." placeholder:"FILE" short:"f"`
	URL        *string           `help:"Where its webhooks go." name:"url"`
	Name       *string           `help:"A name for people."`
	Class      *string           `help:"One of the server's classes."`
	Types      []string          `help:"Event types: shipment.delivered, shipment.* or *." placeholder:"TYPE"`
	Attribute  map[string]string `help:"Only events with this attribute; values that may be are parted by a bar: carrier=dhl|ups." mapsep:"none" placeholder:"NAME=VALUE"`
	Policy     map[string]string `help:"A field of the policy: max_attempts=5, attempt_timeout=10s." mapsep:"," placeholder:"FIELD=VALUE"`
	Classify   map[string]string `help:"What a status leads to: 404=retry, 500=dead." mapsep:"," placeholder:"STATUS=KIND"`
	HeaderFile string            `help:"JSON object of headers to send with every request; their values are never shown." placeholder:"FILE" type:"path"`
}

// input reads the file, then lays the flags over it.
func (d *draft) input(s *session) (client.SubscriberInput, error) {
	var in client.SubscriberInput
	if d.File != "" {
		if err := readJSON(s, d.File, &in); err != nil {
			return in, err
		}
	}
	override(&in.URL, d.URL)
	override(&in.Name, d.Name)
	override(&in.Class, d.Class)
	if len(d.Types) > 0 || len(d.Attribute) > 0 {
		if in.Filter == nil {
			in.Filter = &client.Filter{}
		}
		if len(d.Types) > 0 {
			in.Filter.Types = d.Types
		}
		for name, values := range d.Attribute {
			if in.Filter.Attributes == nil {
				in.Filter.Attributes = map[string][]string{}
			}
			in.Filter.Attributes[name] = strings.Split(values, "|")
		}
	}
	if d.HeaderFile != "" {
		if err := readJSON(s, d.HeaderFile, &in.Headers); err != nil {
			return in, err
		}
	}
	err := d.policy(&in)
	return in, err
}

// override sets a field that a flag was given for.
func override(field **string, flag *string) {
	if flag != nil {
		*field = flag
	}
}

// policy turns field=value into the JSON that the API takes.
func (d *draft) policy(in *client.SubscriberInput) error {
	if len(d.Policy) == 0 && len(d.Classify) == 0 {
		return nil
	}
	fields := map[string]any{}
	for name, value := range d.Policy {
		v, err := policyField(name, value)
		if err != nil {
			return usage("--policy=%s=%s: %v", name, value, err)
		}
		fields[name] = v
	}
	if len(d.Classify) > 0 {
		fields["classify"] = d.Classify
	}
	text, err := json.Marshal(fields)
	if err != nil {
		return usage("--policy cannot be read: %v", err)
	}
	if in.Policy == nil {
		in.Policy = &client.PolicyInput{}
	}
	if err := strictJSON(text, in.Policy); err != nil {
		return usage("--policy: %v", err)
	}
	return nil
}

const maxInput = 16 << 20 // bytes of a file that is read whole

// readJSON reads a file, or stdin for "-".
func readJSON(s *session, name string, into any) error {
	text, err := readFile(s, name)
	if err != nil {
		return err
	}
	if err := strictJSON(text, into); err != nil {
		return usage("%s: %v", name, err)
	}
	return nil
}

func readFile(s *session, name string) ([]byte, error) {
	from := s.in
	if name != "-" {
		f, err := os.Open(name)
		if err != nil {
			return nil, usage("%v", err)
		}
		defer func() { _ = f.Close() }()
		from = f
	}
	text, err := io.ReadAll(io.LimitReader(from, maxInput+1))
	switch {
	case err != nil:
		return nil, fmt.Errorf("read %s: %w", name, err)
	case len(text) > maxInput:
		return nil, usage("%s is longer than %d MiB", name, maxInput>>20)
	}
	return text, nil
}

// strictJSON refuses fields that nothing reads: a mistyped one would be left out in
// silence. The errors of encoding/json that quote a value are not passed on: it may
// be a secret.
func strictJSON(text []byte, into any) error {
	d := json.NewDecoder(bytes.NewReader(text))
	d.DisallowUnknownFields()
	err := d.Decode(into)
	var (
		kind   *json.UnmarshalTypeError
		syntax *json.SyntaxError
	)
	switch {
	case errors.As(err, &kind) && kind.Type == reflect.TypeFor[client.Duration]():
		return fmt.Errorf("%s is a duration with its unit, in quotes, such as \"10s\"", kind.Field)
	case errors.As(err, &kind):
		return fmt.Errorf("%s cannot be a JSON %s", kind.Field, strings.Fields(kind.Value)[0])
	case errors.As(err, &syntax):
		return fmt.Errorf("not JSON, at byte %d", syntax.Offset)
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return errors.New("not JSON: it ends too early")
	case err != nil:
		return errors.New(strings.TrimPrefix(err.Error(), "json: "))
	}
	if d.More() {
		return errors.New("there is more than one JSON value")
	}
	return nil
}

type subscribersCreate struct {
	draft

	Account    *string `help:"The account that it belongs to; default that of the key."`
	SecretFile string  `help:"File with a signing secret of your own; left out, one is made." placeholder:"FILE" type:"path"`
	Paused     bool    `help:"Create it on hold."`
}

// Run registers a subscriber.
func (l *subscribersCreate) Run(ctx context.Context, s *session) error {
	in, err := l.input(s)
	if err != nil {
		return err
	}
	override(&in.Account, l.Account)
	if l.Paused {
		in.Paused = new(true)
	}
	if l.SecretFile != "" {
		secret, err := secretFrom(l.SecretFile, "")
		if err != nil {
			return err
		}
		in.Secret = &secret
	}
	if in.URL == nil {
		return usage("say where its webhooks go: --url, or url in --file")
	}
	made, err := ask(ctx, s, func(ctx context.Context, c *client.Client) (client.CreatedSubscriber, error) {
		return c.CreateSubscriber(ctx, in)
	})
	if err != nil {
		return err
	}
	s.shownOnce("the signing secret")
	return s.show(func(t *table) {
		t.row("id", made.ID)
		t.row("secret", made.Secret)
		for _, secret := range made.Secrets {
			t.maybe("public key", secret.PublicKey)
		}
		t.row("url", endpointOf(made.URL))
		t.row("types", strings.Join(made.Filter.Types, ", "))
		t.row("served", servedAnew(made.Subscriber))
		for _, w := range made.Warnings {
			t.row("warning", w)
		}
	})
}

// servedAnew is served for one that was made a moment ago, whose answer has no status:
// nothing can hold it but a pause.
func servedAnew(sub client.Subscriber) string { return cmp.Or(served(sub), "sending") }

// shownOnce says on stderr what the answer holds, so that nobody looks for it later.
func (s *session) shownOnce(what string) {
	s.precious = true
	s.notef("Keep %s: it is shown this once, and nobody can show it again.", what)
}

type subscribersPatch struct {
	draft

	ID      subscriberID `arg:"" help:"The subscriber's id." name:"subscriber"`
	Version int64        `help:"Change it only if it is at this version." name:"if-version"`
}

// Run changes a subscriber.
func (l *subscribersPatch) Run(ctx context.Context, s *session) error {
	in, err := l.input(s)
	if err != nil {
		return err
	}
	if reflect.ValueOf(in).IsZero() {
		return usage("say what to change, by flags or --file")
	}
	sub, err := ask(ctx, s, func(ctx context.Context, c *client.Client) (client.Subscriber, error) {
		return c.PatchSubscriber(ctx, string(l.ID), in, client.If{Version: l.Version})
	})
	if err != nil {
		return err
	}
	return s.show(func(t *table) { subscriberRows(t, sub, time.Now()) })
}

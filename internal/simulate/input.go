package simulate

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/fanout/fanout/internal/delivery"
)

// Read reads a scenario from YAML. A key that nothing has is refused. Errors are
// ErrScenario, but for those of r.
func Read(r io.Reader) (*Scenario, error) {
	b, err := io.ReadAll(r)
	if err != nil {
		return nil, fmt.Errorf("read the scenario: %w", err)
	}
	dec := yaml.NewDecoder(bytes.NewReader(b))
	dec.KnownFields(true)
	s := &Scenario{Name: "scenario"}
	if err := dec.Decode(s); err != nil {
		if errors.Is(err, io.EOF) {
			err = errors.New("the file is empty")
		}
		return nil, fmt.Errorf("%w: %w", ErrScenario, err)
	}
	if err := dec.Decode(new(yaml.Node)); !errors.Is(err, io.EOF) {
		return nil, fmt.Errorf("%w: the file has more than one document", ErrScenario)
	}
	var given Given
	if err := yaml.Unmarshal(b, &given); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrScenario, err)
	}
	return s, given.Apply(s, func(field string) string { return field })
}

// UnmarshalYAML reads a policy: its name, and the fields in which it is not the default.
func (p *Policy) UnmarshalYAML(n *yaml.Node) error {
	if n.Kind != yaml.MappingNode {
		return fmt.Errorf("line %d: a policy is a mapping of fields", n.Line)
	}
	p.Policy = delivery.DefaultPolicy()
	for i := 0; i < len(n.Content); i += 2 {
		key, value := n.Content[i].Value, n.Content[i+1]
		var err error
		switch {
		case key == "name":
			err = value.Decode(&p.Name)
		case key == "classify":
			err = value.Decode(&p.Classify)
		case value.Kind != yaml.ScalarNode:
			err = fmt.Errorf("%s: want one value", key)
		default:
			err = p.set(key, value.Value)
		}
		if err != nil {
			return fmt.Errorf("line %d: %w", value.Line, err)
		}
	}
	return nil
}

// set sets one field by its JSON name.
func (p *Policy) set(key, value string) error {
	if status, ok := strings.CutPrefix(key, "classify."); ok {
		n, err := strconv.Atoi(status)
		if err != nil {
			return fmt.Errorf("%s: want a status, such as classify.404=retry", key)
		}
		if p.Classify == nil {
			p.Classify = map[int]delivery.Override{}
		}
		p.Classify[n] = delivery.Override(value)
		return nil
	}
	var v any = value
	if json.Valid([]byte(value)) { // a number
		v = json.RawMessage(value)
	}
	b, err := json.Marshal(map[string]any{key: v})
	if err != nil {
		return fmt.Errorf("%s: %w", key, err)
	}
	dec := json.NewDecoder(bytes.NewReader(b))
	dec.DisallowUnknownFields()
	if err := dec.Decode(&p.Policy); err != nil {
		if strings.Contains(err.Error(), "unknown field") { // encoding/json has no type for it
			return fmt.Errorf("a policy has no field %q", key)
		}
		return fmt.Errorf("%s=%s: %w", key, value, err)
	}
	return nil
}

// spec is NAME:KEY=VALUE,... as flags have it.
type spec struct {
	name   string
	fields [][2]string
}

func parseSpec(what, text string) (spec, error) {
	name, rest, _ := strings.Cut(text, ":")
	s := spec{name: name}
	if name == "" {
		return s, fmt.Errorf("%w: %s %q: want name:field=value,", ErrScenario, what, text)
	}
	if rest == "" {
		return s, nil
	}
	for pair := range strings.SplitSeq(rest, ",") {
		key, value, ok := strings.Cut(pair, "=")
		if !ok || key == "" || value == "" {
			return s, fmt.Errorf("%w: %s %s: %q is no field=value", ErrScenario, what, name, pair)
		}
		s.fields = append(s.fields, [2]string{key, value})
	}
	return s, nil
}

// each hands the fields to set, and says whose was wrong.
func (s spec) each(what string, set func(key, value string) error) error {
	for _, f := range s.fields {
		if err := set(f[0], f[1]); err != nil {
			return fmt.Errorf("%w: %s %s: %w", ErrScenario, what, s.name, err)
		}
	}
	return nil
}

// ParsePolicy reads name:max_attempts=8,backoff_base=2s; what is left out is the default,
// and classify.404=retry is one of classify.
func ParsePolicy(text string) (Policy, error) {
	p := Policy{Policy: delivery.DefaultPolicy()}
	s, err := parseSpec("policy", text)
	if err != nil {
		return p, err
	}
	p.Name = s.name
	return p, s.each("policy", p.set)
}

// ParseGroup reads name:endpoints=90,fanout=1,p50=50ms,p99=400ms,failures=0.01,status=503.
func ParseGroup(text string) (Group, error) {
	s, err := parseSpec("group", text)
	if err != nil {
		return Group{}, err
	}
	g := Group{Name: s.name, Endpoints: 1}
	return g, s.each("group", func(key, value string) (err error) {
		switch key {
		case "endpoints":
			g.Endpoints, err = strconv.Atoi(value)
		case "fanout":
			g.Fanout, err = strconv.ParseFloat(value, 64)
		case "p50":
			err = positive(&g.Latency.P50, value)
		case "p99":
			err = positive(&g.Latency.P99, value)
		case "failures":
			g.Failures.Share, err = strconv.ParseFloat(value, 64)
		case "status":
			if g.Failures.Status, err = strconv.Atoi(value); err == nil && g.Failures.Status == 0 {
				err = errors.New("status: must be from 300 to 599, is 0")
			}
		default:
			err = fmt.Errorf("there is no field %q", key)
		}
		return err
	})
}

// positive reads a duration of a flag's field, of which 0 would come to be the default.
func positive(d *delivery.Duration, text string) error {
	if err := d.UnmarshalText([]byte(text)); err != nil {
		return err //nolint:wrapcheck // it says what was not understood
	}
	if *d <= 0 {
		return fmt.Errorf("%s: must be above 0s, to 1h; leave it out for the default", text)
	}
	return nil
}

// ParseOutage reads group:from=10m,for=15m,does=hang,share=0.5,retry_after=30s, and says
// whose it is.
func ParseOutage(text string) (group string, o Outage, err error) {
	s, err := parseSpec("outage", text)
	if err != nil {
		return "", o, err
	}
	return s.name, o, s.each("outage", func(key, value string) (err error) {
		switch key {
		case "from":
			err = o.From.UnmarshalText([]byte(value))
		case "for":
			err = o.For.UnmarshalText([]byte(value))
		case "does":
			o.Does = Manner(value)
		case "share":
			if o.Share, err = strconv.ParseFloat(value, 64); err == nil && o.Share == 0 {
				err = errors.New("share: must be above 0, to 1, is 0")
			}
		case "retry_after":
			err = o.RetryAfter.UnmarshalText([]byte(value))
		default:
			err = fmt.Errorf("there is no field %q", key)
		}
		return err
	})
}

// AddOutage gives a group one more outage.
func (s *Scenario) AddOutage(group string, o Outage) error {
	for i := range s.Groups {
		if s.Groups[i].Name == group {
			s.Groups[i].Outages = append(s.Groups[i].Outages, o)
			return nil
		}
	}
	return fmt.Errorf("%w: outage: there is no group %q", ErrScenario, group)
}

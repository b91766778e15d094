package contract

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"regexp/syntax"
	"slices"
	"strings"
	"unicode/utf8"
)

// value is JSON that may be broken: members may repeat, and a scalar is the very
// bytes that are sent.
type value struct {
	kind   byte // '{', '[' or 0 for a scalar
	names  []string
	parts  []*value // of an object or an array
	scalar string
}

func scalar(v any) *value {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		panic(err)
	}
	return &value{scalar: strings.TrimSuffix(b.String(), "\n")}
}

func raw(text string) *value { return &value{scalar: text} }

func (v *value) set(name string, part *value) {
	v.names, v.parts = append(v.names, name), append(v.parts, part)
}

func (v *value) clone() *value {
	c := *v
	c.names, c.parts = slices.Clone(v.names), make([]*value, len(v.parts))
	for i, p := range v.parts {
		c.parts[i] = p.clone()
	}
	return &c
}

// all are the value and what is in it, in a fixed order.
func (v *value) all() []*value {
	list := []*value{v}
	for _, p := range v.parts {
		list = append(list, p.all()...)
	}
	return list
}

func (v *value) String() string {
	if v.kind == 0 {
		return v.scalar
	}
	var b strings.Builder
	b.WriteByte(v.kind)
	for i, p := range v.parts {
		if i > 0 {
			b.WriteByte(',')
		}
		if v.kind == '{' {
			b.WriteString(scalar(v.names[i]).scalar + ":")
		}
		b.WriteString(p.String())
	}
	b.WriteByte(v.kind + 2) // '}' and ']'
	return b.String()
}

// drawer draws values of the contract's schemas.
type drawer struct {
	*rand.Rand
	doc document
	// known gives a value that means something for a property or a parameter of a
	// name; ok is false where any will do.
	known func(name string) (v *value, ok bool)
}

func (d *drawer) chance(p float64) bool { return d.Float64() < p }

func pick[T any](d *drawer, of []T) T { return of[d.IntN(len(of))] }

const (
	deepest = 6 // of what is drawn for "any JSON value"
	widest  = 6 // members or elements, unless more are to be
)

// draw makes a value that the schema allows, most of the time a short one. name is
// that of the property or parameter, "" if it has none.
func (d *drawer) draw(name string, s object) *value {
	if v, ok := d.known(name); ok {
		return v
	}
	s = d.doc.resolve(s)
	if all, ok := s["allOf"].([]any); ok {
		return d.draw("", all[0].(object))
	}
	if enum, ok := s["enum"].([]any); ok {
		return scalar(pick(d, enum))
	}
	if examples, ok := s["examples"].([]any); ok && d.chance(0.2) {
		return fromAny(pick(d, examples))
	}
	kind, _ := s["type"].(string)
	if kinds, ok := s["type"].([]any); ok {
		kind = pick(d, kinds).(string)
	}
	switch kind {
	case "object":
		return d.object(s)
	case "array":
		v := &value{kind: '['}
		for range d.between(s, "minItems", "maxItems", 0, widest) {
			v.parts = append(v.parts, d.draw("", s["items"].(object)))
		}
		return v
	case "string":
		return scalar(d.text(s))
	case "integer":
		return scalar(d.between(s, "minimum", "maximum", 0, 1000))
	case "number":
		return scalar(float64(d.between(s, "minimum", "maximum", 0, 1000)) / 2)
	case "boolean":
		return scalar(d.chance(0.5))
	case "null":
		return raw("null")
	}
	return d.anything(deepest)
}

func (d *drawer) object(s object) *value {
	v := &value{kind: '{'}
	props, _ := s["properties"].(object)
	required, _ := s["required"].([]any)
	for _, name := range sorted(props) {
		if slices.Contains(required, any(name)) || d.chance(0.4) {
			v.set(name, d.draw(name, props[name].(object)))
		}
	}
	extra, ok := s["additionalProperties"].(object)
	if !ok {
		return v
	}
	for range d.between(s, "minProperties", "maxProperties", 0, 4) {
		name := pick(d, []string{"carrier", "seller_id", "country", "x"})
		if names, ok := s["propertyNames"].(object); ok {
			name = d.text(names)
		}
		if !slices.Contains(v.names, name) {
			v.set(name, d.draw("", extra))
		}
	}
	return v
}

// between is a number within two bounds of the schema, now and then at one of them;
// what they leave open is from 0 to most.
func (d *drawer) between(s object, low, high string, least, most int) int {
	if n, ok := s[low].(int); ok {
		least = n
	}
	top := max(least, most)
	if n, ok := s[high].(int); ok {
		top = min(top, n)
		if d.chance(0.02) && n <= 1000 {
			return n
		}
	}
	if d.chance(0.1) {
		return least
	}
	return least + d.IntN(top-least+1)
}

// text fits the pattern and the bounds of a schema.
func (d *drawer) text(s object) string {
	if s["format"] == "date-time" {
		return pick(d, []string{"2026-11-30T14:03:22+01:00", "2030-01-01T00:00:00Z", "0001-01-01T00:00:00Z", "2026-02-28T23:59:59.999999999-12:00"})
	}
	if pattern, ok := s["pattern"].(string); ok {
		re, err := syntax.Parse(pattern, syntax.Perl)
		if err != nil {
			panic(err)
		}
		text := d.matching(re.Simplify())
		if n, ok := s["maxLength"].(int); ok && len(text) > n {
			return d.text(s)
		}
		return text
	}
	n := d.between(s, "minLength", "maxLength", 0, 12)
	var b strings.Builder
	for range n {
		b.WriteRune(pick(d, []rune("abcXYZ019 _-.:/%&é日😀")))
	}
	return b.String()
}

// matching is a string that fits an expression, with short repetitions.
func (d *drawer) matching(re *syntax.Regexp) string {
	var b strings.Builder
	switch re.Op {
	case syntax.OpLiteral:
		return string(re.Rune)
	case syntax.OpCharClass:
		i := 2 * d.IntN(len(re.Rune)/2)
		low, high := re.Rune[i], min(re.Rune[i+1], utf8.MaxRune)
		return string(low + rune(d.IntN(int(min(high-low, 500))+1)))
	case syntax.OpConcat:
		for _, sub := range re.Sub {
			b.WriteString(d.matching(sub))
		}
	case syntax.OpAlternate:
		return d.matching(pick(d, re.Sub))
	case syntax.OpCapture:
		return d.matching(re.Sub[0])
	case syntax.OpStar, syntax.OpPlus, syntax.OpQuest:
		n := d.IntN(4)
		if re.Op == syntax.OpPlus {
			n++
		}
		if re.Op == syntax.OpQuest {
			n %= 2
		}
		for range n {
			b.WriteString(d.matching(re.Sub[0]))
		}
	case syntax.OpBeginText, syntax.OpEndText, syntax.OpBeginLine, syntax.OpEndLine, syntax.OpEmptyMatch:
	default:
		panic(fmt.Sprintf("a pattern with %s: teach this test to draw it", re.Op))
	}
	return b.String()
}

// anything is any JSON value.
func (d *drawer) anything(depth int) *value {
	if depth > 0 && d.chance(0.4) {
		v := &value{kind: pick(d, []byte("{["))}
		for range d.IntN(widest) {
			part := d.anything(depth - 1)
			if v.kind == '{' {
				v.set(pick(d, []string{"a", "b", "", "data", "id", "é"}), part) // repeated ones too
			} else {
				v.parts = append(v.parts, part)
			}
		}
		return v
	}
	return raw(pick(d, []string{
		"null", "true", "false", "0", "-0", "1e2", "1.50", "18446744073709551616", "1e400", `""`, `"a b"`, `"<&>"`,
		`"\ud83d\ude00"`, `"\u0000"`, `"\\ud800"`, `"日"`, "{}", "[]",
	}))
}

// fromAny is a value of the document as JSON.
func fromAny(v any) *value {
	switch v := v.(type) {
	case object:
		out := &value{kind: '{'}
		for _, name := range sorted(v) {
			out.set(name, fromAny(v[name]))
		}
		return out
	case []any:
		out := &value{kind: '['}
		for _, part := range v {
			out.parts = append(out.parts, fromAny(part))
		}
		return out
	}
	return scalar(v)
}

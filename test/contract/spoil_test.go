package contract

import (
	"fmt"
	"slices"
	"strings"
)

// spoil breaks a body in one way, and says how. Most ways make it one that must be
// refused; none of them may be more than the server can bear.
func (d *drawer) spoil(v *value) string {
	all := v.all()
	at := pick(d, all)
	switch d.IntN(11) {
	case 0:
		*at = *pick(d, []*value{
			raw("null"), raw("true"), raw("17"), raw("-1"), raw("1.5"), raw(`""`), raw(`"x"`),
			{kind: '['},
			{kind: '{'},
			{kind: '[', parts: []*value{raw("1")}},
			raw("1e400"), raw("99999999999999999999999"), raw("-0"), raw("0.1e-7"),
			raw(`"2016-12-31T23:59:60Z"`), raw(`"9999999999s"`),
		})
		return "a wrong type"
	case 1:
		if o := d.one(all, '{', 1); o != nil {
			i := d.IntN(len(o.names))
			o.names, o.parts = slices.Delete(o.names, i, i+1), slices.Delete(o.parts, i, i+1)
			return "a member is missing"
		}
	case 2:
		if o := d.one(all, '{', 0); o != nil {
			o.set(pick(d, []string{"extra", "Type", "ID", "", "__proto__", "a/b~c", strings.Repeat("n", 5000), "\x00", "secret"}), d.anything(2))
			return "a member too many"
		}
	case 3:
		if o := d.one(all, '{', 1); o != nil {
			i := d.IntN(len(o.names))
			o.set(o.names[i], pick(d, []*value{o.parts[i].clone(), raw("1"), raw(`"other"`)}))
			return "a member twice"
		}
	case 4:
		*at = *raw(`"` + strings.Repeat(pick(d, []string{"x", "é", "😀", `\u0000`}), pick(d, []int{65, 257, 2049, 40_000})) + `"`)
		return "a huge string"
	case 5:
		n := pick(d, []int{60, 64, 65, 66, 200, 10_000})
		open := pick(d, []string{"[", `{"a":`})
		shut := map[string]string{"[": "]", `{"a":`: "}"}[open]
		*at = *raw(strings.Repeat(open, n) + "1" + strings.Repeat(shut, n))
		return "deep"
	case 6:
		*at = *raw(`"` + pick(d, []string{"\xff", "a\xc3", "\xed\xa0\x80", "\xf4\x90\x80\x80", "\xc0\xaf", "\x80"}) + `"`)
		return "bad UTF-8"
	case 7:
		*at = *raw(pick(d, []string{`"\ud800"`, `"\udc00\ud800"`, `"\uZZZZ"`, `"\x41"`, "\"a\nb\"", `"` + "\x00" + `"`}))
		return "a bad string"
	case 8:
		*at = *raw(pick(d, []string{"01", "+1", "1.", ".5", "NaN", "Infinity", "0x10", "tru", "'x'", "undefined", ""}))
		return "no JSON"
	case 9:
		if a := d.one(all, '[', 1); a != nil {
			for range pick(d, []int{20, 70, 300}) {
				a.parts = append(a.parts, a.parts[0])
			}
			return "a long array"
		}
	}
	if o := d.one(all, '{', 0); o != nil {
		for i := range pick(d, []int{17, 65, 400}) {
			o.set(fmt.Sprintf("x-%d", i), raw(`"v"`))
		}
		return "many members"
	}
	*at = *raw("null")
	return "null"
}

// one is any value of a kind with at least so many parts, nil if there is none.
func (d *drawer) one(all []*value, kind byte, least int) *value {
	var fit []*value
	for _, v := range all {
		if v.kind == kind && len(v.parts) >= least {
			fit = append(fit, v)
		}
	}
	if len(fit) == 0 {
		return nil
	}
	return pick(d, fit)
}

// spoilText breaks a body as the bytes that it is.
func (d *drawer) spoilText(text string) string {
	n := len(text)
	switch d.IntN(12) {
	case 0:
		return ""
	case 1:
		return text[:d.IntN(n+1)]
	case 2:
		return text + pick(d, []string{"x", "{}", ",", "\x00", "}"})
	case 3:
		return pick(d, []string{"\xef\xbb\xbf", "\xff\xfe", "\x00"}) + text
	case 4:
		return strings.Repeat(" ", pick(d, []int{1, 1000, 400_000})) + text + "\n"
	case 5:
		return pick(d, []string{"null", "[]", "1", `"x"`, "true", "[" + text + "]", "<xml/>", "a=b&c=d"})
	case 6:
		return strings.ReplaceAll(text, `"`, "'")
	case 7:
		return strings.ReplaceAll(text, ":", "")
	case 8: // as another charset has it
		return "\x00" + strings.Join(strings.Split(text, ""), "\x00")
	default:
		b := []byte(text)
		for range 1 + d.IntN(3) {
			if len(b) > 0 {
				b[d.IntN(len(b))] = byte(d.IntN(256))
			}
		}
		return string(b)
	}
}

package plot

import (
	"bufio"
	"encoding/xml"
	"fmt"
	"strings"
)

// pen writes; the first error stays with the buffer until its flush.
type pen struct{ w *bufio.Writer }

func (p pen) sayf(format string, a ...any) {
	_, _ = fmt.Fprintf(p.w, format+"\n", a...) // reported by the flush
}

func escape(s string) string {
	var b strings.Builder
	_ = xml.EscapeText(&b, []byte(s)) // a builder takes everything
	return b.String()
}

// axes draws grid, ticks and titles.
func (c Chart) axes(p pen, x, y scale) {
	for _, v := range y.ticks() {
		at := y.place(v)
		p.sayf(`<path class="grid" d="M%d %.1fH%d"/>`, left, at, width-right)
		p.sayf(`<text class="tick" x="%d" y="%.1f" text-anchor="end">%s</text>`, left-8, at+4, number(v))
	}
	for _, v := range x.ticks() {
		at := x.place(v)
		p.sayf(`<path class="grid" d="M%.1f %dv5"/>`, at, height-bottom)
		p.sayf(`<text class="tick" x="%.1f" y="%d" text-anchor="middle">%s</text>`, at, height-bottom+18, number(v))
	}
	p.sayf(`<path class="axis" d="M%d %dV%dH%d"/>`, left, top, height-bottom, width-right)
	p.sayf(`<text class="label" x="%d" y="%d" text-anchor="middle">%s</text>`,
		(left+width-right)/2, height-bottom+36, escape(c.X.title()))
	p.sayf(`<text class="label" transform="translate(16 %d) rotate(-90)" text-anchor="middle">%s</text>`,
		(top+height-bottom)/2, escape(c.Y.title()))
}

func (c Chart) marks(p pen, x scale) {
	for i, m := range c.Marks {
		at := x.place(m.X)
		if at < left || at > width-right {
			continue
		}
		anchor, shift := "start", 5.0
		if at > width*2/3 { // near the right edge the label stands on the other side
			anchor, shift = "end", -5
		}
		p.sayf(`<path class="mark" d="M%.1f %dV%d"/>`, at, top-12, height-bottom)
		p.sayf(`<text class="tick" x="%.1f" y="%d" text-anchor="%s">%s</text>`,
			at+shift, top-5-i%2*12, anchor, escape(m.Label))
	}
}

// path is the line in SVG's words, or "" if nothing can be drawn.
func (s Series) path(x, y scale) string {
	var b strings.Builder
	pen, last := false, 0.0
	for _, p := range s.Points {
		if !p.finite() || !x.has(p.X) || !y.has(p.Y) {
			pen = false
			continue
		}
		px, py := x.place(p.X), y.place(p.Y)
		switch {
		case !pen:
			fmt.Fprintf(&b, "M%.1f %.1f", px, py)
		case s.Step:
			fmt.Fprintf(&b, "H%.1f", px)
			if py != last {
				fmt.Fprintf(&b, "V%.1f", py)
			}
		default:
			fmt.Fprintf(&b, "L%.1f %.1f", px, py)
		}
		pen, last = true, py
	}
	return b.String()
}

// legend stands below, each name behind a piece of its line.
func (c Chart) legend(p pen) {
	const glyph = 7.2 // a letter's width, roughly: no font can be asked
	at, row := float64(left), height-26
	for i, s := range c.Series {
		need := 34 + glyph*float64(len([]rune(s.Name))) + 18
		if at+need > width-right && at > left {
			at, row = left, row+18
		}
		p.sayf(`<path class="s s%d" d="M%.1f %dh26"/>`, i%colours, at, row-4)
		p.sayf(`<text class="label" x="%.1f" y="%d">%s</text>`, at+32, row, escape(s.Name))
		at += need
	}
}

// colours is how many series can be told apart.
const colours = 8

// The palette of Okabe and Ito for a light ground, and lighter tones of the same
// hues for a dark one; the dashes go with the place in the list.
var (
	lightColours = [colours]string{"#0072b2", "#d55e00", "#007f5c", "#b3528e", "#a07000", "#2b87bd", "#555555", "#7a3e00"}
	darkColours  = [colours]string{"#56b4e9", "#ff8c42", "#2fc49a", "#e59cc8", "#f0c04c", "#9ad4f5", "#c4c4c4", "#d9a066"}
	dashes       = [colours]string{"none", "7 4", "2 3", "10 3 2 3", "12 5", "4 2", "1 4", "8 3 2 3 2 3"}
)

func style() string {
	var b strings.Builder
	b.WriteString(`text{font-family:system-ui,sans-serif;font-size:12px;fill:#222}` +
		`.title{font-size:16px;font-weight:600}.tick{fill:#555;font-size:11px}` +
		`.bg{fill:#fff}.grid{stroke:#ddd}.axis,.mark{stroke:#777;fill:none}.mark{stroke-dasharray:3 3}` +
		`.s{fill:none;stroke-width:1.8;stroke-linejoin:round}`)
	for i := range colours {
		fmt.Fprintf(&b, ".s%d{stroke:%s;stroke-dasharray:%s}", i, lightColours[i], dashes[i])
	}
	b.WriteString(`@media (prefers-color-scheme:dark){text{fill:#eee}.tick{fill:#aaa}.bg{fill:#16181c}.grid{stroke:#333}.axis,.mark{stroke:#888}`) //nolint:misspell // CSS spells it so
	for i := range colours {
		fmt.Fprintf(&b, ".s%d{stroke:%s}", i, darkColours[i])
	}
	b.WriteString("}")
	return b.String()
}

package browsertest

import (
	"bytes"
	"cmp"
	"image"
	rgb "image/color" //nolint:misspell // its name
	"image/png"
	"os"
	"slices"

	"github.com/chromedp/chromedp"
)

// Picture writes what the window shows into a PNG file, up to so many CSS pixels high. It
// has 256 colours: a page has few, and the file is a third as large.
func (b *Browser) Picture(file string, width, height int64, scale float64, scheme string) {
	b.t.Helper()
	b.Size(width, height, scale)
	b.Scheme(scheme)
	b.Wait("fonts and styles", `document.fonts.status === "loaded" && document.readyState === "complete"`)
	raw, err := chromedp.Run(b.ctx, chromedp.CaptureScreenshot())
	if err != nil {
		b.t.Fatal(err)
	}
	shot, err := png.Decode(bytes.NewReader(raw))
	if err != nil {
		b.t.Fatal(err)
	}
	var out bytes.Buffer
	if err := (&png.Encoder{CompressionLevel: png.BestCompression}).Encode(&out, fewer(shot)); err != nil {
		b.t.Fatal(err)
	}
	if err := os.WriteFile(file, out.Bytes(), 0o600); err != nil {
		b.t.Fatal(err)
	}
}

// fewer has the 256 colours that an image has most of; the others become the nearest.
func fewer(shot image.Image) image.Image {
	const most = 256
	size := shot.Bounds()
	counts := map[rgb.RGBA]int{}
	at := func(x, y int) rgb.RGBA {
		c, _ := rgb.RGBAModel.Convert(shot.At(x, y)).(rgb.RGBA)
		return c
	}
	for y := size.Min.Y; y < size.Max.Y; y++ {
		for x := size.Min.X; x < size.Max.X; x++ {
			counts[at(x, y)]++
		}
	}
	colours := make([]rgb.RGBA, 0, len(counts))
	for c := range counts {
		colours = append(colours, c)
	}
	slices.SortFunc(colours, func(a, b rgb.RGBA) int {
		return cmp.Or(cmp.Compare(counts[b], counts[a]), cmp.Compare(a.R, b.R), cmp.Compare(a.G, b.G), cmp.Compare(a.B, b.B))
	})
	palette := make(rgb.Palette, 0, most)
	for _, c := range colours[:min(len(colours), most)] {
		palette = append(palette, c)
	}
	nearest := make(map[rgb.RGBA]uint8, len(colours))
	for _, c := range colours {
		nearest[c] = uint8(palette.Index(c))
	}
	out := image.NewPaletted(size, palette)
	for y := size.Min.Y; y < size.Max.Y; y++ {
		for x := size.Min.X; x < size.Max.X; x++ {
			out.SetColorIndex(x, y, nearest[at(x, y)])
		}
	}
	return out
}

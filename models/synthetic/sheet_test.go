package synthetic

import (
	"flag"
	"image"
	"image/draw"
	"image/png"
	"os"
	"slices"
	"testing"

	"promptfed/runtime/goldentest"
)

var sheet = flag.String("sheet", "", "write a contact sheet of all classes and domains to this PNG file")
var sheetDomain = flag.String("sheet-domain", "", "one domain only, many samples")

// TestSheet writes a contact sheet for visual inspection; without -sheet it does nothing.
func TestSheet(t *testing.T) {
	if *sheet == "" {
		t.Skip("no -sheet given")
	}
	const size, per = 64, 2
	classes := slices.Concat(Classes(), Textures())
	doms := Domains()
	n := per
	if *sheetDomain != "" {
		doms, n = []string{*sheetDomain}, 12
	}
	out := image.NewRGBA(image.Rect(0, 0, len(doms)*n*(size+2), len(classes)*(size+2)))
	for i, c := range classes {
		for j, d := range doms {
			for k := range n {
				img, err := sample(c, d, uint64(k)).Image(size)
				goldentest.NoError(t, err)
				at := image.Pt((j*n+k)*(size+2), i*(size+2))
				draw.Draw(out, image.Rect(0, 0, size, size).Add(at), img, image.Point{}, draw.Src)
			}
		}
	}
	f, err := os.Create(*sheet)
	goldentest.NoError(t, err)
	goldentest.NoError(t, png.Encode(f, out))
	goldentest.NoError(t, f.Close())
}

package synthetic

import (
	"fmt"
	"image"
	"math/rand/v2"
	"slices"
	"strings"

	"promptfed/runtime/convert"
)

// Sample holds the attributes of one image, which a caption can name.
type Sample struct {
	Class   string // an object of Classes or a pattern of Textures
	Domain  string
	Colour  string // of the figure, or of the stripes, dots, ... of a pattern
	Ground  string // colour of the background; "" in domains with a constant background; invisible behind a pattern
	Texture string // name of the figure's pattern, or ""
	Seed    uint64
	style   Style
}

// figures is the table of objects; known lists the names of objects and patterns.
var (
	figures = slices.Concat(plain, nature, things)
	known   = slices.Concat(Classes(), Textures())
)

// entry is a row of a table with a name.
type entry interface{ label() string }

func (f figure) label() string      { return f.name }
func (t texture) label() string     { return t.name }
func (d domain) label() string      { return d.name }
func (c namedColour) label() string { return c.name }

func names[T entry](table []T) []string {
	return convert.Slice(table, T.label)
}

func named[T entry](table []T, name string) (e T, ok bool) {
	if i := slices.IndexFunc(table, func(e T) bool { return e.label() == name }); i >= 0 {
		return table[i], true
	}
	return e, false
}

// Classes returns the names of the objects, in a fixed order.
func Classes() []string { return names(figures) }

// Textures returns the names of the patterns. Patterns fill objects, and are also classes that fill the whole image.
func Textures() []string { return names(textures) }

// Domains returns the names of the visual domains, in a fixed order.
func Domains() []string { return names(domains) }

// New draws the attributes of a sample of the class in the domain. Equal seeds of different classes and domains give
// independent samples. For an unknown class or domain, the error lists the known ones.
func New(class, domain string, seed uint64, style Style) (Sample, error) {
	if !slices.Contains(known, class) {
		return Sample{}, fmt.Errorf("synthetic: no class %q: take one of %s", class, strings.Join(known, ", "))
	}

	d, ok := named(domains, domain)
	if !ok {
		return Sample{}, fmt.Errorf("synthetic: no domain %q: take one of %s", domain, strings.Join(Domains(), ", "))
	}

	sample := Sample{Class: class, Domain: domain, Seed: seed, style: style}
	rng := sample.source(0)
	ground := palette[rng.IntN(len(palette))]
	if d.ground != nil {
		ground = namedColour{value: *d.ground}
	}

	sample.Ground = ground.name
	sample.Colour = against(rng, style.Contrast, ground.value).name
	textured := rng.Float64() < style.Textured
	if t := textures[rng.IntN(len(textures))]; textured {
		sample.Texture = t.name
	}

	if sample.pattern() {
		sample.Texture = class
	}

	return sample, nil
}

// Draw returns a sample of the Default style as a square image with sides of size pixels.
func Draw(class, domain string, seed uint64, size int) (image.Image, error) {
	s, err := New(class, domain, seed, Default())
	if err != nil {
		return nil, err
	}
	return s.Image(size)
}

// source returns a random stream of the sample; different purposes use different streams.
func (s Sample) source(purpose uint64) *rand.Rand {
	h := hash2(s.Seed, purpose)
	for _, name := range []string{s.Class, "\x00", s.Domain} {
		for _, b := range []byte(name) {
			h = hash2(h, uint64(b))
		}
	}
	return rand.New(rand.NewPCG(h, hash2(h, 1)))
}

// Style sets how much samples of one class differ. Lengths are fractions of the image side, angles are degrees, shares
// are probabilities.
type Style struct {
	Scale    [2]float64 // minimal and maximal diameter of the figure
	Shift    float64    // maximal distance of the figure's centre from the image's centre, as a share of the free space
	Rotate   float64    // maximal rotation in both directions
	Stretch  float64    // maximal unequal scaling and shear
	Warp     float64    // smooth deformation of the outline, in units of the figure's radius
	Textured float64    // share of figures filled with a texture
	Clutter  int        // maximal number of small distractors
	Contrast int32      // minimal difference between figure and background, 0 to about 200
	Grain    int32      // pixel noise, 0 to 255, in domains with noise
	Occlude  float64    // probability that a distractor may cover the figure
}

// Level interpolates between an easy style at 0 and a hard one at 1; other values are clamped. Level(0.5) is Default.
func Level(difficulty float64) Style {
	d := min(1, max(0, difficulty))
	at := func(easy, hard float64) float64 { return easy + float64(d*(hard-easy)) }
	return Style{
		Scale:    [2]float64{at(0.7, 0.4), at(0.85, 0.9)},
		Shift:    at(0.3, 1),
		Rotate:   at(8, 42),
		Stretch:  at(0.05, 0.35),
		Warp:     at(0.02, 0.12),
		Textured: at(0.15, 0.65),
		Clutter:  int(at(0, 6) + 0.5),
		Contrast: int32(at(90, 40)),
		Grain:    int32(at(6, 40)),
		Occlude:  at(0, 0.5),
	}
}

// Default returns the style of medium difficulty.
func Default() Style { return Level(0.5) }

package synthetic

import (
	"fmt"
	"image"
	"math/rand/v2"
	"slices"
	"strings"
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

// Classes returns the names of the objects, in a fixed order.
func Classes() []string {
	var out []string
	for _, f := range figures {
		out = append(out, f.name)
	}
	return out
}

// Textures returns the names of the patterns. Patterns fill objects, and are also classes that fill the whole image.
func Textures() []string {
	var out []string
	for _, t := range textures {
		out = append(out, t.name)
	}
	return out
}

// Domains returns the names of the visual domains, in a fixed order.
func Domains() []string {
	var out []string
	for _, d := range domains {
		out = append(out, d.name)
	}
	return out
}

// New draws the attributes of a sample of the class in the domain. Equal seeds of different classes and domains give
// independent samples. For an unknown class or domain, the error lists the known ones.
func New(class, domain string, seed uint64, style Style) (Sample, error) {
	if !slices.Contains(known, class) {
		return Sample{}, fmt.Errorf("synthetic: no class %q: take one of %s", class,
			strings.Join(known, ", "))
	}
	d, ok := domainOf(domain)
	if !ok {
		return Sample{}, fmt.Errorf("synthetic: no domain %q: take one of %s", domain, strings.Join(Domains(), ", "))
	}
	s := Sample{Class: class, Domain: domain, Seed: seed, style: style}
	rng := s.source(0)
	ground := palette[rng.IntN(len(palette))]
	if d.ground != nil {
		ground = namedColour{value: *d.ground}
	}
	s.Ground = ground.name
	s.Colour = against(rng, style.Contrast, ground.value).name
	textured := rng.Float64() < style.Textured
	if t := textures[rng.IntN(len(textures))]; textured {
		s.Texture = t.name
	}
	if _, ok := textureOf(class); ok {
		s.Texture = class
	}
	return s, nil
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

// Package synthetic is an endless set of small captioned images that the program draws itself: objects and textures in
// several visual domains. It needs no download and no licence, so demos, tests and the pretraining of the bundled
// backbones can rest on it.
//
// A sample is a pure function of (class, domain, seed, style): the same arguments give the same picture in every run.
// Pixels are mixed in integers, outlines are computed in float64; a processor that fuses multiply and add (arm64,
// s390x) may round an outline differently and differ from amd64 by one step in single pixels.
package synthetic

import (
	"fmt"
	"image"
	"math/rand/v2"
	"slices"
	"strings"
)

// Sample is one image before it is drawn: what a caption can say about it.
type Sample struct {
	Class   string // an object of Classes or a pattern of Textures
	Domain  string
	Colour  string // of the figure, or of the stripes, dots, ... of a pattern
	Ground  string // colour of the background; "" in domains whose background is fixed, not visible behind a pattern
	Texture string // name of the pattern of the figure, or ""
	Seed    uint64
	style   Style
}

// figures is the one table of objects; known are the names of objects and patterns.
var (
	figures = slices.Concat(plain, nature, things)
	known   = slices.Concat(Classes(), Textures())
)

// Classes are the names of the objects, in a fixed order.
func Classes() []string {
	var out []string
	for _, f := range figures {
		out = append(out, f.name)
	}
	return out
}

// Textures are the names of the patterns: they fill objects and are classes of their own that fill the whole image.
func Textures() []string {
	var out []string
	for _, t := range textures {
		out = append(out, t.name)
	}
	return out
}

// Domains are the names of the visual domains, in a fixed order.
func Domains() []string {
	var out []string
	for _, d := range domains {
		out = append(out, d.name)
	}
	return out
}

// New draws the attributes of a sample of the class in the domain. Seeds are independent of each other across classes
// and domains. An unknown class or domain is an error that lists the known ones.
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

// Draw is the sample of the Default style as a square image of size pixels a side.
func Draw(class, domain string, seed uint64, size int) (image.Image, error) {
	s, err := New(class, domain, seed, Default())
	if err != nil {
		return nil, err
	}
	return s.Image(size)
}

// source is a random stream of the sample; different purposes use different streams.
func (s Sample) source(purpose uint64) *rand.Rand {
	h := hash2(s.Seed, purpose)
	for _, name := range []string{s.Class, "\x00", s.Domain} {
		for _, b := range []byte(name) {
			h = hash2(h, uint64(b))
		}
	}
	return rand.New(rand.NewPCG(h, hash2(h, 1)))
}

package pretrain

import (
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"slices"
	"strings"

	"promptfed/federation/data"
	"promptfed/federation/data/sets"
	"promptfed/models/preprocess"
	"promptfed/models/synthetic"
)

// keepOf is the period of Source.Keep: of ten images of a class, a set without its own test split keeps eight for
// training.
const keepOf = 8

// pair is a captioned image as input of the towers.
type pair struct {
	pixels  []float32 // [3,S,S]
	caption string
	class   string
}

// sampler draws pairs from one source; equal states of rng draw equal pairs. It is safe for concurrent use.
type sampler interface {
	sample(rng *rand.Rand, w writer) (pair, error)
}

func (s Source) synthetic() bool { return s.Data.Set == "synthetic" }

func (s Source) classes() []string {
	if c := s.Data.Generator.Classes; len(c) > 0 {
		return c
	}
	return slices.Concat(synthetic.Classes(), synthetic.Textures())
}

func (s Source) domains() []string {
	if d := s.Data.Generator.Domains; len(d) > 0 {
		return d
	}
	return synthetic.Domains()
}

// drawer samples synthetic images.
type drawer struct {
	Source
	prep preprocess.Preprocess
}

func (d drawer) sample(rng *rand.Rand, writer writer) (pair, error) {
	classes, domains := d.classes(), d.domains()
	u := rng.Float64()
	level := d.Difficulty[0] + float64((d.Difficulty[1]-d.Difficulty[0])*u*u)
	sample, err := synthetic.New(classes[rng.IntN(len(classes))], domains[rng.IntN(len(domains))], rng.Uint64(),
		synthetic.Level(level))
	if err != nil {
		return pair{}, err
	}

	img, err := sample.Image(d.prep.Size)
	if err != nil {
		return pair{}, err
	}

	text, err := writer.write(rng, sample.Class, classes, func(class string) string {
		if templates := d.Captions["any"]; len(templates) > 0 {
			return word(templates[rng.IntN(len(templates))], class)
		}
		said := sample
		said.Class = class
		return said.Caption(rng)
	})

	return pair{d.prep.Pixels(img), text, sample.Class}, err
}

// lister samples images of a labelled set, with captions from templates.
type lister struct {
	Source
	prep preprocess.Preprocess
	set  *data.Set
	list []data.Example

	templates [][]string // of each domain
}

func openLister(source Source, prep preprocess.Preprocess) (*lister, error) {
	set, err := sets.Open(source.Data)
	if err != nil {
		return nil, err
	}

	if set.Pool != nil {
		return nil, fmt.Errorf("data.split: %q has no training images: use given", source.Data.Split)
	}

	lister := &lister{Source: source, prep: prep, set: set}
	seen := map[[2]int]int{}
	for _, e := range set.Train {
		k := [2]int{e.Label, e.Domain}
		if source.Keep == 0 || seen[k]%keepOf < source.Keep {
			lister.list = append(lister.list, e)
		}
		seen[k]++
	}

	if len(lister.list) == 0 {
		return nil, fmt.Errorf("no training images in %s", source.Data.Root)
	}

	return lister, lister.word()
}

// word assigns templates to every domain: those under its name, or else those under any. Names are compared without
// case and underscores, since keys of configuration files lose their case. Templates for an unknown domain are an
// error.
func (l *lister) word() error {
	fold := func(name string) string { return strings.ToLower(strings.ReplaceAll(name, "_", " ")) }
	domains := l.set.Domains
	if len(domains) == 0 {
		domains = []string{anyDomain}
	}

	keys := map[string]string{} // folded name to key
	for _, key := range slices.Sorted(maps.Keys(l.Captions)) {
		if other, ok := keys[fold(key)]; ok {
			return fmt.Errorf("captions: %s and %s are of the same domain: keep one", other, key)
		}
		keys[fold(key)] = key
	}

	for _, name := range domains {
		templates := l.Captions[keys[fold(name)]]
		if len(templates) == 0 {
			templates = l.Captions[anyDomain]
		}
		if len(templates) == 0 {
			return fmt.Errorf("captions: domain %q has no templates: add %s or any", name, name)
		}
		l.templates = append(l.templates, templates)
		delete(keys, fold(name))
	}

	delete(keys, anyDomain)
	for _, key := range slices.Sorted(maps.Values(keys)) {
		return fmt.Errorf("captions: no domain %s; the domains are %s", key, strings.Join(domains, ", "))
	}

	return nil
}

// anyDomain is the key of the templates for domains without their own templates.
const anyDomain = "any"

func (l *lister) sample(rng *rand.Rand, w writer) (pair, error) {
	e := l.list[rng.IntN(len(l.list))]
	img, err := e.Image(preprocess.Decode)
	if err != nil {
		return pair{}, err
	}

	pixels := l.moved(l.prep.Pixels(img), rng)
	templates := l.templates[e.Domain]
	class := l.set.Classes[e.Label]
	text, err := w.write(rng, class, l.set.Classes, func(class string) string {
		return word(templates[rng.IntN(len(templates))], class)
	})
	return pair{pixels, text, class}, err
}

func lacksClass(template string) bool {
	return !strings.Contains(template, "{}") && !strings.Contains(template, "{a}")
}

// word inserts a class into a template.
func word(template, class string) string {
	article := "a "
	if class != "" && strings.ContainsRune("aeiou", rune(class[0])) {
		article = "an "
	}
	return strings.NewReplacer("{}", class, "{a}", article+class).Replace(template)
}

// moved mirrors and shifts pixels [3,S,S] at random; the border is repeated outside the image.
func (s Source) moved(pixels []float32, rng *rand.Rand) []float32 {
	side := int(math.Sqrt(float64(len(pixels) / 3)))
	mirror := s.Mirror && rng.IntN(2) == 1
	dx, dy := 0, 0
	if s.Shift > 0 {
		dx, dy = rng.IntN(2*s.Shift+1)-s.Shift, rng.IntN(2*s.Shift+1)-s.Shift
	}

	if !mirror && dx == 0 && dy == 0 {
		return pixels
	}

	out := make([]float32, len(pixels))
	at := func(i int) int { return min(max(i, 0), side-1) }
	for c := range 3 {
		for y := range side {
			row := pixels[(c*side+at(y-dy))*side:][:side]
			to := out[(c*side+y)*side:][:side]
			for x := range side {
				from := at(x - dx)
				if mirror {
					from = side - 1 - from
				}
				to[x] = row[from]
			}
		}
	}

	return out
}

// writer chooses the captions of images.
type writer struct {
	careless Careless
	fits     func(caption string) bool
}

// write draws captions of an image of a class until one fits. say draws a caption that names the given class; classes
// are those of the source, in order.
func (w writer) write(rng *rand.Rand, class string, classes []string, say func(class string) string) (string, error) {
	text := ""
	for range 50 {
		text = say(class)
		if w.careless.starts(text) && rng.Float64() < w.careless.Share {
			text = w.wrong(class, classes, say)
		}
		if text != "" && w.fits(text) {
			return text, nil
		}
	}

	return "", fmt.Errorf("caption %q and others for the same image are longer than caption_tokens: raise it", text)
}

// wrong returns a caption with a careless wording that names the next class, or "" if none is drawn.
func (w writer) wrong(class string, classes []string, say func(class string) string) string {
	next := classes[(slices.Index(classes, class)+1)%len(classes)]
	for range 50 {
		if text := say(next); w.careless.starts(text) {
			return text
		}
	}
	return ""
}

func (c Careless) starts(text string) bool {
	return slices.ContainsFunc(c.Wordings, func(w string) bool { return strings.HasPrefix(text, w) })
}

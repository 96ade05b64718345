package synthetic

import (
	"math/rand/v2"
	"strings"
)

// Caption describes the sample in one of many ways. It always names the class, and sometimes domain, colour, texture
// and background, always truthfully. It draws its choices from rng.
func (s Sample) Caption(rng *rand.Rand) string {
	d, _ := named(domains, s.Domain)
	lead := ""
	switch k := rng.IntN(10); {
	case k < 6:
		lead = d.phrases[0] + " "
		if rng.IntN(2) == 0 {
			lead = d.phrases[rng.IntN(len(d.phrases))] + " "
		}
	case k < 8:
		lead = []string{"an image of ", "a picture of ", "this is "}[rng.IntN(3)]
	}

	text := lead
	if s.pattern() {
		text += s.surface(rng)
	} else {
		text += s.object(rng)
		if s.coloured() && rng.IntN(8) == 0 {
			text += " on " + article(s.Ground) + " background"
		}
	}

	if rng.IntN(3) > 0 {
		text += "."
	}

	return text
}

// pattern reports whether the sample is a pattern over the whole image, and not an object.
func (s Sample) pattern() bool {
	_, ok := named(textures, s.Class)
	return ok
}

// coloured reports whether the colours of figure and background are visible in the domain.
func (s Sample) coloured() bool {
	return s.Domain != "sketch" && s.Domain != "silhouette" && s.Domain != "neon"
}

func (s Sample) object(rng *rand.Rand) string {
	var words []string
	if s.coloured() && rng.IntN(5) < 2 {
		words = append(words, s.Colour)
	}

	if t, ok := named(textures, s.Texture); ok && rng.IntN(5) < 3 {
		words = append(words, t.adjective)
	}

	noun := strings.Join(append(words, s.Class), " ")
	switch k := rng.IntN(10); {
	case k == 0:
		return "the " + noun
	case k == 1:
		return noun
	case k == 2 && s.Texture != "":
		return article(s.Class) + " with " + s.Texture
	}

	return article(noun)
}

func (s Sample) surface(rng *rand.Rand) string {
	colour := ""
	if s.coloured() && rng.IntN(3) == 0 {
		colour = s.Colour + " "
	}

	if rng.IntN(3) == 0 {
		t, _ := named(textures, s.Class)
		return article(colour + t.adjective + " pattern")
	}

	return colour + s.Class
}

// article puts "a" or "an" before a noun phrase.
func article(noun string) string {
	if strings.ContainsRune("aeiou", rune(noun[0])) {
		return "an " + noun
	}
	return "a " + noun
}

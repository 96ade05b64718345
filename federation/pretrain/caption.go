package pretrain

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
)

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

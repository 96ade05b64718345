package experiment

import (
	"fmt"

	"promptfed/federation/data"
)

// classNotes returns notes on classes that clients cannot be tested on, or cannot learn, because images are missing:
// one line of each kind. A single client need not have images of every class.
func (b *Built) classNotes() []string {
	train, test := make([]int, len(b.Set.Classes)), make([]int, len(b.Set.Classes))
	count := func(counts []int, list []data.Example) {
		for _, e := range list {
			counts[e.Label]++
		}
	}
	for _, p := range b.Parts {
		trained, _, tested := p.Of(b.Set)
		count(train, trained)
		count(test, tested)
	}
	var neither, untrained, untested []string
	for k, name := range b.Set.Classes {
		switch {
		case train[k]+test[k] == 0 && b.of == 0:
			neither = append(neither, name)
		case train[k]+test[k] == 0:
		case train[k] == 0:
			untrained = append(untrained, name)
		case test[k] == 0:
			untested = append(untested, name)
		}
	}
	var out []string
	say := func(names []string, what string) {
		if len(names) > 0 {
			out = append(out, fmt.Sprintf("no client has %s of %s: %s", what, CountInWords(len(names), "class"),
				shortList(names)))
		}
	}
	say(neither, "images")
	say(untrained, "training images")
	say(untested, "test images")
	return out
}

package configtags

import (
	"strings"
	"testing"
)

func TestSuggest(t *testing.T) {
	keys := strings.Fields("method seed partition.clients partition.kind train.batch train.epochs train.lr " +
		"train.lr_end train.rounds data.root data.set eval.last")
	methods := strings.Fields("coop fedpha fedprox fedotp ggtpc kgcoop maple plot promptfl promptsrc sdfed zeroshot")
	for _, c := range []struct {
		name  string
		known []string
		want  string
	}{
		{"lr", keys, "did you mean train.lr? see all"},
		{"rounds", keys, "did you mean train.rounds? see all"},
		{"round", keys, "did you mean train.rounds? see all"}, // one letter and the section
		{"clients", keys, "did you mean partition.clients? see all"},
		{"trian.lr", keys, "did you mean train.lr? see all"}, // distance 1; train.lr_end has 5
		{"Method", keys, "did you mean method? see all"},
		{"promtfl", methods, "did you mean promptfl? see all"},
		{"fedhpa", methods, "did you mean fedpha? see all"},
		{"rnu", strings.Fields("a b c d e f g h run sweep"), "did you mean run? see all"},
		{"fedop", methods, "did you mean fedotp? see all"},
		{"sdfde", methods, "did you mean sdfed? see all"},                    // two letters in the wrong order
		{"promptsr", methods, "did you mean promptsrc or promptfl? see all"}, // one letter, and two
		{"resnet", methods, "see all"},
		{"lt", keys, "see all"},                                      // one of only two letters
		{"mnist", strings.Fields("a b c d e f g h list"), "see all"}, // two of five letters
		{"train.rnds", keys, "see all"},                              // two of four letters behind the section
		{"x", strings.Fields("a b c d e f g h"), "use a, b, c, d, e, f, g or h"},
		{"x", keys[:2], "use method or seed"},
		{"x", keys[:1], "use method"},
	} {
		if got := Suggest(c.name, c.known, "see all"); got != c.want {
			t.Errorf("%s: %s, not %s", c.name, got, c.want)
		}
	}
	if got := Suggest("resnet", methods, ""); got != "use "+Alternatives(methods) {
		t.Error(got)
	}
}

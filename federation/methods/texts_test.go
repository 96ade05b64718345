package methods_test

import (
	"reflect"
	"testing"

	"promptfed/federation/engine/spec"
	"promptfed/federation/methodtest"
)

// The texts equal those of CoOp's and FedPGP's public code. The toy's sentences depend only on the sum of their bytes.
func TestHandWrittenTexts(t *testing.T) {
	selected := []string{"a bad photo of the {}.", "a origami {}.", "a photo of the large {}.",
		"a photo of the small {}.", "a {} in a video game.", "art of the {}.", "itap of a {}."}
	for _, c := range []struct {
		name    string
		options options
		want    []string
	}{
		{"zeroshot", nil, nil},
		{"zeroshot", options{"ensemble": "none"}, nil},
		{"zeroshot", options{"template": "pets"}, []string{"a photo of a {}, a type of pet."}},
		{"zeroshot", options{"template": "dtd"}, []string{"{} texture."}},
		{"zeroshot", options{"template": "eurosat"}, []string{"a centered satellite photo of {}."}},
		{"zeroshot", options{"template": "food"}, []string{"a photo of {}, a type of food."}},
		{"zeroshot", options{"template": "ucf"}, []string{"a photo of a person doing {}."}},
		{"zeroshot", options{"template": "flowers"}, []string{"a photo of a {}, a type of flower."}},
		{"zeroshot", options{"template": "a {}!"}, []string{"a {}!"}},
		{"zeroshot", options{"ensemble": "imagenet-7"}, selected},
		{"zeroshot", options{"ensemble": []string{"imagenet-7"}, "template": "dtd"},
			append(selected[:len(selected):len(selected)], "{} texture.")},
		{"promptfl", nil, nil},
		{"fedpgp", nil, nil},
		{"fedpgp", options{"positive": "code", "tokens": 3}, []string{"X X X {}."}},
		{"fedtpg", options{"heads": 2}, []string{"{}"}},
	} {
		m := methodtest.Build(t, c.name, nil, c.options)
		e := &spec.Experiment{Method: m, Classes: methodtest.Classes}
		if got := e.Templates(&methodtest.Toy{ID: "toy", Width: 6, Dim: 5}); !reflect.DeepEqual(got, c.want) {
			t.Errorf("%s %v reads %q, want %q", c.name, c.options, got, c.want)
		}
	}
}

package prompts

import (
	"maps"
	"slices"
	"strings"

	"promptfed/federation/method"
	"promptfed/federation/methods/parts/check"
	"promptfed/runtime/graph"
)

// Template is the option of a hand-written prompt, to which a method compares the learned prompt.
type Template struct {
	Template string `config:"template"`
}

// AutoTemplate is the template of the experiment, data.template.
var AutoTemplate = Template{"auto"}

// LongHelp implements configtags.LongHelp.
func (Template) LongHelp() map[string]string {
	return map[string]string{
		"template": "hand-written prompt: auto (data.template), plain, aircraft, dtd, eurosat, flowers, food, pets, " +
			"ucf, or a text with {} for the class",
	}
}

// Check reports a text without a place for the class.
func (t Template) Check() error {
	if t.Template != "auto" && Templates[t.Template] == "" && !strings.Contains(t.Template, "{}") {
		return check.OptionErrorf("template", " is %q; it must contain {} for the class, or be one of auto, %s",
			t.Template, strings.Join(slices.Sorted(maps.Keys(Templates)), ", "))
	}
	return nil
}

// Text returns the template as a text; "" for data.template.
func (t Template) Text() string {
	switch named := Templates[t.Template]; {
	case t.Template == "auto":
		return ""
	case named != "":
		return named
	}
	return t.Template
}

// Texts returns the class features [C,D] of the hand-written prompt.
func (t Template) Texts(scope *method.Scope) graph.Node {
	if text := t.Text(); text != "" {
		return scope.HandText(text)
	}
	return scope.HandText()
}

// Templates are hand-written prompts by data set, as CoOp writes them.
var Templates = map[string]string{
	"plain":    "a photo of a {}.",
	"aircraft": "a photo of a {}, a type of aircraft.",
	"dtd":      "{} texture.",
	"eurosat":  "a centered satellite photo of {}.",
	"flowers":  "a photo of a {}, a type of flower.",
	"food":     "a photo of {}, a type of food.",
	"pets":     "a photo of a {}, a type of pet.",
	"ucf":      "a photo of a person doing {}.",
}

// imagenet7 are the templates that CLIP's authors selected for ImageNet.
var imagenet7 = []string{"itap of a {}.", "a bad photo of the {}.", "a origami {}.", "a photo of the large {}.",
	"a {} in a video game.", "art of the {}.", "a photo of the small {}."}

// Ensemble returns the templates that a list names.
func Ensemble(list []string) (texts []string) {
	for _, t := range list {
		switch t {
		case "none":
		case "imagenet-7":
			texts = append(texts, imagenet7...)
		default:
			texts = append(texts, t)
		}
	}

	return texts
}

// CheckEnsemble reports templates of an option's list without a place {} for the class name.
func CheckEnsemble(option string, list []string) (err error) {
	for _, t := range Ensemble(list) {
		if !strings.Contains(t, "{}") {
			err = check.Join(err, check.OptionErrorf(option, ": %q must contain {} for the class", t))
		}
	}
	return err
}

package adapters

import (
	"fmt"
	"slices"

	"promptfed/federation/method"
	"promptfed/federation/methods/parts/check"
	"promptfed/federation/methods/parts/layer"
	"promptfed/federation/methods/parts/prompts"
	"promptfed/runtime/graph"
)

// ZeroShot scores images against hand-written prompts and learns nothing.
//
// Radford et al., Learning Transferable Visual Models From Natural Language Supervision, ICML 2021, section 3.1. The
// templates by data set and the seven of the ensemble are those of CoOp's public code. CoOp adds the data set's own
// template to the ensemble: `template: pets, ensemble: imagenet-7` scores with all eight.
type ZeroShot struct {
	method.FedAvg
	prompts.Template `config:",squash"`

	Ensemble []string `config:"ensemble" help:"further ones: imagenet-7, none, or texts with {}; auto then adds none"`
}

var zeroShotDef = layer.Def{Name: "zeroshot", Title: "zero-shot CLIP",
	Paper:   "Radford et al., Learning Transferable Visual Models, ICML 2021",
	Default: ZeroShot{Template: prompts.AutoTemplate}}

// texts returns all templates; none for data.template.
func (m ZeroShot) texts() []string {
	texts := prompts.Ensemble(m.Ensemble)
	if text := m.Text(); text != "" {
		texts = append(texts, text)
	}
	return texts
}

// Check reports templates of the ensemble without a place {} for the class name, and templates that are listed twice.
func (m ZeroShot) Check() error {
	err, texts := prompts.CheckEnsemble("ensemble", m.Ensemble), m.texts()
	for i, t := range texts {
		if slices.Contains(texts[:i], t) {
			err = check.Join(err, fmt.Errorf("template %q is listed twice", t))
		}
	}

	return err
}

// Params declares nothing: no tensor is learned, and none is sent.
func (ZeroShot) Params(method.ClientSpec) []method.Param { return nil }

// Logits compares images with the class features of the templates. Several templates give the mean of their unit class
// features, made unit again.
func (m ZeroShot) Logits(scope *method.Scope) graph.Node {
	return scope.Cosine(scope.Image(), scope.HandText(m.texts()...))
}

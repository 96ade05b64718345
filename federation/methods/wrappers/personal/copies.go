package personal

import (
	"errors"
	"strings"

	"promptfed/federation/method"
	"promptfed/federation/methods/parts/layer"
	"promptfed/runtime/tensor"
)

// personal is the word for a client's own model in names of terms.
const personal = "personal"

// allShared returns an error unless base is a base method that shares all of its parameters.
func allShared(base method.Method) error {
	if err := besideBase(base, "keeps a copy of"); err != nil {
		return err
	}

	if len(layer.SharedNames(base)) < len(base.Params(layer.PlaceholderClient)) {
		return errors.New("it keeps a personal model on each client beside the averaged one, but the base method has " +
			"private parameters already; choose another base method")
	}

	return layer.RequireShared(base)
}

// withCopies returns a base method's parameters and a private copy of each, prefix/NAME, with the same initial value.
func withCopies(base method.Method, t method.ClientSpec, prefix string) []method.Param {
	out := base.Params(t)
	for _, p := range base.Params(t) {
		out = append(out, method.Param{Name: prefix + "/" + p.Name, Shape: p.Shape, Owner: method.Private,
			Words: p.Words, Init: firstOf(base, t, p.Name)})
	}
	return out
}

// twoModels returns an error for settings by which one model would change the other.
func twoModels(local *method.Local) error {
	if local.Optim.ClipNorm > 0 {
		return errors.New("train.clip_norm bounds the gradients of the averaged and the personal model together; set " +
			"it to 0, or use clip_value")
	}
	return nil
}

// adjustCopies lets a base method adjust the gradients of copies, and freeze copies, as it does with its parameters.
func adjustCopies(base method.Method, local *method.Local, g tensor.Map, prefix string) error {
	own := *local
	own.Shared, own.Private, own.AuxGradients = local.Private.WithoutPrefix(prefix), tensor.Map{},
		map[string]tensor.Map{}
	own.Frozen = nil
	for name, grads := range local.AuxGradients {
		if auxiliary, ok := strings.CutSuffix(name, " "+personal); ok {
			own.AuxGradients[auxiliary] = grads.WithoutPrefix(prefix)
		}
	}

	err := base.AdjustGradients(&own, g.WithoutPrefix(prefix))
	for _, name := range own.Frozen {
		local.Frozen = append(local.Frozen, prefix+"/"+name)
	}

	return err
}

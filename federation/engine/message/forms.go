package message

import (
	"slices"

	"promptfed/federation/engine/metrics"
	"promptfed/federation/method"
	"promptfed/runtime/tensor"
)

// ReplySpecs returns the forms of all tensors that a client's reply to the instruction can have. They follow from the
// instruction, the method, the terms of its loss (method.TermNames), and the client's task.
func (o Instruction) ReplySpecs(of method.Method, terms []string, task method.ClientSpec) tensor.Specs {
	if o.Guarded != nil {
		return o.Guarded.WithPrefix(extraPart)
	}
	declared, _ := o.Extras(of, task)
	out := formsOf(declared).WithPrefix(extraPart)
	switch {
	case o.Labels():
		for _, v := range []method.View{method.GlobalView, method.PersonalView} {
			out = append(out, metrics.TableSpecs(task.Classes).WithPrefix(v.String()).WithPrefix(statisticsPart)...)
		}
	case o.Kind == Train:
		if o.Codec != nil {
			out = append(out, o.Codec.Packed(o.Shared).WithPrefix(packedPart)...)
		} else {
			out = append(out, tensor.SpecsOf(o.Shared).WithPrefix(sharedPart)...)
		}
		out = append(out, termForms(terms, of.Params(task)).WithPrefix(termsPart)...)
	}
	return out
}

// formsOf returns the forms of the tensors that a method declares.
func formsOf(declared []method.Extra) tensor.Specs {
	out := make(tensor.Specs, len(declared))
	for i, x := range declared {
		out[i] = tensor.Spec{Name: x.Name, Shape: x.Shape}
	}
	return out
}

// termForms returns the forms of LossTerms.tensors, which clients measure where their configuration asks for them.
func termForms(terms []string, params []method.Param) tensor.Specs {
	var out tensor.Specs
	for i, name := range slices.Concat([]string{fitName}, terms, []string{Correction}) {
		at := termAt(i, name)
		out = append(out, tensor.Spec{Name: at, Int: true, Shape: []int{min(i, 1) + 1}, Optional: true})
		for _, p := range params {
			out = append(out, tensor.Spec{Name: at + "/" + p.Name, Int: true, Shape: []int{1}, Optional: true})
		}
	}
	return out
}

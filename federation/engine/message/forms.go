package message

import (
	"fmt"
	"math"
	"slices"

	"promptfed/federation/engine/metrics"
	"promptfed/federation/method"
	"promptfed/runtime/convert"
	"promptfed/runtime/tensor"
)

// ReplySpecs returns the forms of all tensors that a client's reply to the instruction can have. They follow from the
// instruction, the method, and the client's task.
func (o Instruction) ReplySpecs(base method.Method, task method.ClientSpec) tensor.Specs {
	if o.Guarded != nil {
		return o.Guarded.WithPrefix(extraPart)
	}

	declared, _ := o.Extras(base, task)
	out := formsOf(declared).WithPrefix(extraPart)
	switch {
	case o.Labels():
		for _, v := range views {
			out = append(out, metrics.TableSpecs(task.Classes).WithPrefix(v.String()).WithPrefix(statisticsPart)...)
		}
	case o.Kind == Train:
		if o.Codec != nil {
			out = append(out, o.Codec.Packed(o.Shared).WithPrefix(packedPart)...)
		} else {
			out = append(out, tensor.SpecsOf(o.Shared).WithPrefix(sharedPart)...)
		}
	}

	return out
}

// formsOf returns the forms of the tensors that a method declares.
func formsOf(declared []method.Extra) tensor.Specs {
	return convert.Slice(declared, func(x method.Extra) tensor.Spec {
		return tensor.Spec{Name: x.Name, Shape: x.Shape}
	})
}

// Extras returns the tensors that a reply may have beside shared parameters, as the method declares them; ok is false
// for an instruction that the method does not have.
func (o Instruction) Extras(base method.Method, task method.ClientSpec) (declared []method.Extra, ok bool) {
	if o.Kind == Train {
		return base.Extras(task), true
	}
	if q, ok := o.StatisticOf(base); ok {
		return q.Answer(task), true
	}
	return nil, false
}

// StatisticOf returns the statistic that an instruction asks for; false where the method has none of that name.
func (o Instruction) StatisticOf(base method.Method) (method.Statistic, bool) {
	all := slices.Concat(base.Statistics(o.Round), base.Statistics(0))
	i := slices.IndexFunc(all, func(q method.Statistic) bool { return q.Name == o.Statistic })
	if o.Kind != Compute || i < 0 {
		return method.Statistic{}, false
	}
	return all[i], true
}

// CheckExtras refuses tensors that are not exactly those that a method declares, and counts of more examples than the
// client has.
func CheckExtras(want []method.Extra, got tensor.Map, examples int) error {
	if err := formsOf(want).Check(tensor.SpecsOf(got)); err != nil {
		return err
	}

	for _, extra := range want {
		if !extra.Counts {
			continue
		}

		sum := 0.0
		for _, v := range got[extra.Name].Data {
			if !(v >= 0) || float64(v) != math.Trunc(float64(v)) {
				return fmt.Errorf("the upload counts %v examples of a class in %s; a count is a whole number of at "+
					"least 0", v, extra.Name)
			}
			sum += float64(v)
		}

		if !(sum <= float64(examples)) {
			return fmt.Errorf("the upload counts %.10g examples in %s; the client has %d", sum, extra.Name, examples)
		}
	}

	return nil
}

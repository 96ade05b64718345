package ort

import (
	"maps"
	"slices"
	"strings"

	"promptfed/runtime/tensor"
)

// checkInputs compares names, kinds, ranks, sizes and ranges of inputs with the graph's declarations, because ONNX
// Runtime reports a wrong name only as a missing feed, and reads out of range if a tensor's length is wrong.
func (s *Session) checkInputs(in tensor.Map, held Values) error {
	sizes := map[string]axis{}
	for _, p := range s.inputs {
		t, v := in[p.Name], held[p.Name]
		if v != nil {
			t = v.tensor
		}
		if t == nil {
			return s.errorf("input %q is missing; it takes %s", p.Name, joined(s.inputs, ValueInfo.String))
		}
		if err := s.checkInput(p, t, v != nil && !v.onHost, sizes); err != nil {
			return err
		}
	}
	if len(in)+len(held) > len(s.inputs) {
		for _, name := range append(in.Names(), slices.Sorted(maps.Keys(held))...) {
			if !slices.ContainsFunc(s.inputs, func(p ValueInfo) bool { return p.Name == name }) {
				return s.errorf("no input %q; it takes %s", name, joined(s.inputs, ValueInfo.String))
			}
		}
	}
	return nil
}

// axis is the axis that set the size of a symbol.
type axis struct {
	input string
	index int
	size  int
}

// checkInput checks one input; away says that its elements lie on a device.
func (s *Session) checkInput(p ValueInfo, t *tensor.Tensor, away bool, sizes map[string]axis) error {
	elements := 1
	for _, d := range t.Shape {
		if d < 0 || (elements > 0 && d > (1<<62)/elements) {
			return s.errorf("input %q has the impossible shape %v", p.Name, t.Shape)
		}
		elements *= d
	}
	switch {
	case t.IsInt() != p.IsInt():
		return s.errorf("input %q is %s, but %s is wanted", p.Name, t, p)
	case t.Len() != elements && !away:
		return s.errorf("input %q holds %d elements, but its shape %v has %d", p.Name, t.Len(), t.Shape, elements)
	case !p.Unranked && len(t.Shape) != len(p.Shape):
		return s.errorf("input %q is %s of rank %d, but %s of rank %d is wanted", p.Name, t, len(t.Shape), p,
			len(p.Shape))
	}
	for i, d := range p.Shape {
		got := t.Shape[i]
		if d.Size >= 0 && got != d.Size {
			return s.errorf("input %q is %s, but %s is wanted: axis %d must be %d", p.Name, t, p, i, d.Size)
		}
		if d.Size >= 0 || d.Symbol == "" {
			continue
		}
		if a, ok := sizes[d.Symbol]; !ok {
			sizes[d.Symbol] = axis{p.Name, i, got}
		} else if a.size != got {
			return s.errorf("input %q has %d on axis %d and input %q has %d on axis %d, but both are %s and must "+
				"agree", a.input, a.size, a.index, p.Name, got, i, d.Symbol)
		}
	}
	if limits, ok := integerRanges[p.Type]; ok {
		for i, v := range t.Ints {
			if v < limits[0] || v > limits[1] {
				return s.errorf("input %q holds %d at element %d, which %s cannot hold", p.Name, v, i, typeName(p.Type))
			}
		}
	}
	return nil
}

func joined(infos []ValueInfo, text func(ValueInfo) string) string {
	list := make([]string, len(infos))
	for i, v := range infos {
		list[i] = text(v)
	}
	return strings.Join(list, ", ")
}

package graph

import (
	"fmt"
	"slices"
	"strings"

	"promptfed/runtime/onnx"
)

// upgrade rewrites a node of an older operator set into the form of Opset: attributes that have since become inputs
// turn into constants. It returns the inputs to use.
func (f *File) upgrade(p *onnx.NodeProto, in []Node, version int64) ([]Node, error) {
	if version >= Opset || p.Domain != "" && p.Domain != "ai.onnx" {
		return in, nil
	}
	g := f.Graph
	take := func(name string) (*onnx.AttributeProto, bool) {
		i := slices.IndexFunc(p.Attribute, func(a *onnx.AttributeProto) bool { return a.Name == name })
		if i < 0 {
			return nil, false
		}
		a := p.Attribute[i]
		p.Attribute = slices.Delete(slices.Clone(p.Attribute), i, i+1)
		return a, true
	}
	ints := func(name string) {
		if a, ok := take(name); ok {
			in = append(in, g.Ints(toInts(a.Ints)...))
		}
	}
	switch k := p.OpType; {
	case strings.HasPrefix(k, "Reduce"), k == "Squeeze", k == "Unsqueeze":
		ints("axes")
	case k == "Split":
		ints("split")
		if len(in) == 1 && !slices.ContainsFunc(p.Attribute, func(a *onnx.AttributeProto) bool { return a.Name == "num_outputs" }) {
			p.Attribute = append(p.Attribute, attribute("num_outputs", len(p.Output)))
		}
	case k == "Slice" && version < 10:
		axes, ok := take("axes")
		ints("starts")
		ints("ends")
		if ok {
			in = append(in, g.Ints(toInts(axes.Ints)...))
		}
	case k == "Pad" && version < 11:
		ints("pads")
		if v, ok := take("value"); ok {
			in = append(in, g.Scalar(float64(v.F)))
		}
	case k == "Clip" && version < 11:
		lo, hasLo := take("min")
		hi, hasHi := take("max")
		if hasLo {
			in = append(in, g.Scalar(float64(lo.F)))
		} else {
			in = append(in, Node{})
		}
		if hasHi {
			in = append(in, g.Scalar(float64(hi.F)))
		}
	case k == "Dropout":
		take("ratio") // inference passes its input on
	case (k == "Softmax" || k == "LogSoftmax") && version < 13:
		axis := readAttrs(p.Attribute).Int("axis", 1)
		if r := in[0].Rank(); r < 0 || axis != r-1 && axis != -1 {
			return nil, fmt.Errorf("%s of operator set %d over axis %d of shape %v flattens its input; export with operator set 13 or newer",
				k, version, axis, in[0].Shape())
		}
		take("axis")
		p.Attribute = append(p.Attribute, attribute("axis", -1))
	case k == "Upsample", k == "Resize" && version < 11:
		return nil, fmt.Errorf("%s of operator set %d is not supported; export with operator set 13 or newer", k, version)
	}
	return in, nil
}

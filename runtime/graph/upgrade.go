package graph

import (
	"fmt"
	"slices"
	"strings"

	"promptfed/runtime/onnx"
)

// upgrade rewrites a node of an older operator set into the form of Opset: attributes that have since become inputs
// turn into constants. It changes p and returns the inputs to use.
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
	var err error
	ints := func(name string) {
		a, ok := take(name)
		switch {
		case !ok:
		case a.Type != onnx.AttributeProto_INTS:
			err = fmt.Errorf("attribute %s is of type %v, not a list of integers", name, a.Type)
		default:
			in = append(in, g.Ints(toInts(a.Ints)...))
		}
	}
	number := func(name string) {
		if a, ok := take(name); ok {
			in = append(in, g.Scalar(float64(a.F)))
		} else {
			in = append(in, Node{})
		}
	}
	has := func(name string) bool {
		return slices.ContainsFunc(p.Attribute, func(a *onnx.AttributeProto) bool { return a.Name == name })
	}
	switch k := p.OpType; {
	case strings.HasPrefix(k, "Reduce"), k == "Squeeze", k == "Unsqueeze":
		ints("axes")
	case k == "Split":
		ints("split")
		if len(in) == 1 && !has("num_outputs") {
			p.Attribute = append(p.Attribute, Attr(len(p.Output)).proto("num_outputs"))
		}
	case k == "Slice" && version < 10:
		axes := slices.IndexFunc(p.Attribute, func(a *onnx.AttributeProto) bool { return a.Name == "axes" })
		ints("starts")
		ints("ends")
		if axes >= 0 {
			ints("axes")
		}
	case k == "Pad" && version < 11:
		ints("pads")
		number("value")
	case k == "Clip" && version < 11:
		number("min")
		number("max")
	case k == "Dropout":
		take("ratio") // inference passes its input on
	case k == "Scatter":
		p.OpType = "ScatterElements"
	case k == "RoiAlign" && version < 16 && !has("coordinate_transformation_mode"):
		p.Attribute = append(p.Attribute, Attr("output_half_pixel").proto("coordinate_transformation_mode"))
	case (k == "Softmax" || k == "LogSoftmax" || k == "Hardmax") && version < 13:
		axis := readAttrs(p.Attribute).Int("axis", 1)
		if len(in) == 0 || !in[0].OK() {
			return nil, fmt.Errorf("needs 1 inputs, has 0")
		}
		if r := in[0].Rank(); r < 0 || axis != r-1 && axis != -1 {
			return nil, fmt.Errorf("%s of operator set %d over axis %d of shape %v flattens its input; export with "+
				"operator set 13 or newer",
				k, version, axis, in[0].Shape())
		}
		take("axis")
		p.Attribute = append(p.Attribute, Attr(-1).proto("axis"))
	case k == "BatchNormalization" && version < 14 && len(p.Output) > 1, k == "BatchNormalization" && version < 9 &&
		has("spatial"),
		k == "TopK" && version < 10, k == "Upsample", k == "Resize" && version < 11:
		return nil, fmt.Errorf("this form of operator set %d is not supported; export with operator set 13 or newer",
			version)
	}
	return in, err
}

package onnx

import (
	"encoding/binary"
	"fmt"
	"math"
	"slices"
	"strings"
)

// upgrade appends the nodes that replace a node of a standard operator set before Opset. Attributes that have become
// inputs turn into constants. It changes node.
func (u *upgrader) upgrade(to []*NodeProto, node *NodeProto, version int64) ([]*NodeProto, error) {
	if version >= Opset || !Standard(node.Domain) {
		return append(to, node), nil
	}

	has := func(name string) bool { return Attribute(node, name) != nil }
	take := func(name string) *AttributeProto {
		taken := Attribute(node, name)
		node.Attribute = slices.DeleteFunc(slices.Clone(node.Attribute),
			func(a *AttributeProto) bool { return a == taken })
		return taken
	}

	set := func(a *AttributeProto) { node.Attribute = append(slices.Clone(node.Attribute), a) }
	input := func(name string, t *TensorProto) {
		c := u.fresh(node.Output[0] + "/" + name)
		to = append(to, &NodeProto{OpType: "Constant", Output: []string{c},
			Attribute: []*AttributeProto{{Name: "value", Type: AttributeProto_TENSOR, T: t}}})
		node.Input = append(slices.Clone(node.Input), c)
	}

	var err error
	ints := func(name string) {
		switch a := take(name); {
		case a == nil:
		case a.Type != AttributeProto_INTS:
			err = fmt.Errorf("attribute %s is of type %v, not a list of integers", name, a.Type)
		default:
			input(name, &TensorProto{DataType: int32(TensorProto_INT64), Dims: []int64{int64(len(a.Ints))},
				Int64Data: a.Ints})
		}
	}

	number := func(name string) {
		if a := take(name); a != nil {
			raw := binary.LittleEndian.AppendUint32(nil, math.Float32bits(a.F))
			input(name, &TensorProto{DataType: int32(TensorProto_FLOAT), RawData: raw})
		} else {
			node.Input = append(slices.Clone(node.Input), "")
		}
	}

	if len(node.Output) == 0 {
		return append(to, node), nil // an error later
	}

	switch kind := node.OpType; {
	case strings.HasPrefix(kind, "Reduce"), kind == "Squeeze", kind == "Unsqueeze":
		ints("axes")
	case kind == "Split":
		ints("split")
		if len(node.Input) == 1 && !has("num_outputs") {
			set(&AttributeProto{Name: "num_outputs", Type: AttributeProto_INT, I: int64(len(node.Output))})
		}
	case kind == "Slice" && version < 10:
		axes := has("axes")
		ints("starts")
		ints("ends")
		if axes {
			ints("axes")
		}
	case kind == "Pad" && version < 11:
		ints("pads")
		number("value")
	case kind == "Clip" && version < 11:
		number("min")
		number("max")
	case kind == "Dropout":
		take("ratio") // at inference it is the identity
	case kind == "Scatter":
		node.OpType = "ScatterElements"
	case kind == "RoiAlign" && version < 16 && !has("coordinate_transformation_mode"):
		set(&AttributeProto{Name: "coordinate_transformation_mode", Type: AttributeProto_STRING,
			S: []byte("output_half_pixel")})
	case (kind == "Softmax" || kind == "LogSoftmax" || kind == "Hardmax") && version < 13:
		return u.softmax(to, node, take("axis")), nil
	case kind == "BatchNormalization" && version < 14 && len(node.Output) > 1,
		kind == "BatchNormalization" && version < 9 && has("spatial"),
		kind == "TopK" && version < 10, kind == "Upsample", kind == "Resize" && version < 11:
		err = fmt.Errorf("this form of operator set %d is not supported; export with operator set 13 or newer", version)
	}

	return append(to, node), err
}

// softmax appends the nodes of a Softmax, LogSoftmax or Hardmax before operator set 13, which treats its input as a
// matrix: the axes before axis, and all others. Over the last axis this is the present operator.
func (u *upgrader) softmax(to []*NodeProto, node *NodeProto, attribute *AttributeProto) []*NodeProto {
	if attribute == nil {
		attribute = &AttributeProto{Name: "axis", Type: AttributeProto_INT, I: 1}
	}

	node.Attribute = append(slices.Clone(node.Attribute), &AttributeProto{Name: "axis", Type: AttributeProto_INT,
		I: -1})
	if len(node.Input) == 0 || attribute.I == -1 {
		return append(to, node)
	}

	x, y := node.Input[0], node.Output[0]
	if rank := u.ranks[x]; rank > 0 && attribute.I == int64(rank)-1 {
		return append(to, node)
	}

	shape, matrix, result := u.fresh(y+"/shape"), u.fresh(y+"/matrix"), u.fresh(y+"/result")
	node.Input, node.Output = []string{matrix}, []string{result}
	return append(to, &NodeProto{OpType: "Shape", Input: []string{x}, Output: []string{shape}},
		&NodeProto{OpType: "Flatten", Input: []string{x}, Output: []string{matrix},
			Attribute: []*AttributeProto{attribute}}, node,
		&NodeProto{OpType: "Reshape", Input: []string{result, shape}, Output: []string{y}})
}

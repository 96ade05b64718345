package ort

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"

	"promptfed/runtime/convert"
	"promptfed/runtime/onnx"
	"promptfed/runtime/tensor"
)

// Dim is one axis of an input or output: a fixed Size, or Size -1 with the Symbol of the graph ("" for none). In a run,
// axes with the same symbol have the same size.
type Dim struct {
	Size   int
	Symbol string
}

func (d Dim) String() string {
	switch {
	case d.Size >= 0:
		return strconv.Itoa(d.Size)
	case d.Symbol != "":
		return d.Symbol
	}
	return "?"
}

// ValueInfo describes an input or output of a session as the graph declares it.
type ValueInfo struct {
	Name     string
	Type     onnx.TensorProto_DataType // of the graph; Run converts
	Shape    []Dim
	Unranked bool // the graph declares no shape
}

// DType returns the type of the graph as numpy names it.
func (p ValueInfo) DType() string { return typeName(p.Type) }

// IsInt reports whether Run takes or returns integer tensors for the value: for every integer type and for bool.
func (p ValueInfo) IsInt() bool { return onnx.InterfaceType(p.Type) == onnx.TensorProto_INT64 }

func (p ValueInfo) String() string {
	if p.Unranked {
		return fmt.Sprintf("%s %s[any shape]", p.Name, typeName(p.Type))
	}
	dims := convert.Slice(p.Shape, Dim.String)
	return fmt.Sprintf("%s %s[%s]", p.Name, typeName(p.Type), strings.Join(dims, " "))
}

// maxFixed bounds the elements of an output that is allocated before the run, by its declared shape.
const maxFixed = 1 << 26

// fixed returns the shape if all axes are fixed and it has at most so many elements.
func (p ValueInfo) fixed(most int) ([]int, bool) {
	if p.Unranked {
		return nil, false
	}

	shape, size := make([]int, len(p.Shape)), 1
	for i, d := range p.Shape {
		if d.Size < 0 || d.Size > most/max(1, size) {
			return nil, false
		}
		shape[i], size = d.Size, size*d.Size
	}

	return shape, true
}

// integerRanges are the smallest and the largest value of integer types, within int64.
var integerRanges = map[onnx.TensorProto_DataType][2]int64{
	onnx.TensorProto_BOOL:   {0, 1},
	onnx.TensorProto_INT8:   {math.MinInt8, math.MaxInt8},
	onnx.TensorProto_UINT8:  {0, math.MaxUint8},
	onnx.TensorProto_INT16:  {math.MinInt16, math.MaxInt16},
	onnx.TensorProto_UINT16: {0, math.MaxUint16},
	onnx.TensorProto_INT32:  {math.MinInt32, math.MaxInt32},
	onnx.TensorProto_UINT32: {0, math.MaxUint32},
	onnx.TensorProto_UINT64: {0, math.MaxInt64},
}

func typeName(t onnx.TensorProto_DataType) string {
	switch t {
	case onnx.TensorProto_FLOAT:
		return "float32"
	case onnx.TensorProto_DOUBLE:
		return "float64"
	}
	return strings.ToLower(t.String())
}

func infoOf(v *onnx.ValueInfoProto) (ValueInfo, error) {
	tt := v.GetType().GetTensorType()
	if tt == nil {
		return ValueInfo{}, fmt.Errorf("%q is not declared as a tensor", v.GetName())
	}

	valueInfo := ValueInfo{Name: v.GetName(), Type: onnx.TensorProto_DataType(tt.GetElemType())}
	if onnx.InterfaceType(valueInfo.Type) == onnx.TensorProto_UNDEFINED {
		return ValueInfo{}, fmt.Errorf("%q has elements of type %s: only real numbers and bool are supported",
			valueInfo.Name, typeName(valueInfo.Type))
	}

	if tt.GetShape() == nil {
		valueInfo.Unranked = true
		return valueInfo, nil
	}

	for _, d := range tt.GetShape().GetDim() {
		dim := Dim{Size: -1, Symbol: d.GetDimParam()}
		if v, ok := d.GetValue().(*onnx.TensorShapeProto_Dimension_DimValue); ok && v.DimValue >= 0 {
			dim.Size = int(v.DimValue)
		}
		valueInfo.Shape = append(valueInfo.Shape, dim)
	}

	return valueInfo, nil
}

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
			return s.errorf("input %q is missing; it takes %s", p.Name, listed(s.inputs))
		}
		if err := s.checkInput(p, t, v != nil && !v.onHost, sizes); err != nil {
			return err
		}
	}

	if len(in)+len(held) > len(s.inputs) {
		for _, name := range append(in.Names(), slices.Sorted(maps.Keys(held))...) {
			if !slices.ContainsFunc(s.inputs, func(p ValueInfo) bool { return p.Name == name }) {
				return s.errorf("no input %q; it takes %s", name, listed(s.inputs))
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
func (s *Session) checkInput(valueInfo ValueInfo, values *tensor.Tensor, away bool, sizes map[string]axis) error {
	elements := 1
	for _, d := range values.Shape {
		if d < 0 || (elements > 0 && d > (1<<62)/elements) {
			return s.errorf("input %q has the impossible shape %v", valueInfo.Name, values.Shape)
		}
		elements *= d
	}

	switch {
	case values.IsInt() != valueInfo.IsInt():
		return s.errorf("input %q is %s, but %s is wanted", valueInfo.Name, values, valueInfo)
	case values.Len() != elements && !away:
		return s.errorf("input %q holds %d elements, but its shape %v has %d", valueInfo.Name, values.Len(),
			values.Shape, elements)
	case !valueInfo.Unranked && len(values.Shape) != len(valueInfo.Shape):
		return s.errorf("input %q is %s of rank %d, but %s of rank %d is wanted", valueInfo.Name, values,
			len(values.Shape), valueInfo, len(valueInfo.Shape))
	}

	for i, dim := range valueInfo.Shape {
		got := values.Shape[i]
		if dim.Size >= 0 && got != dim.Size {
			return s.errorf("input %q is %s, but %s is wanted: axis %d must be %d", valueInfo.Name, values, valueInfo,
				i, dim.Size)
		}

		if dim.Size >= 0 || dim.Symbol == "" {
			continue
		}

		if a, ok := sizes[dim.Symbol]; !ok {
			sizes[dim.Symbol] = axis{valueInfo.Name, i, got}
		} else if a.size != got {
			return s.errorf("input %q has %d on axis %d and input %q has %d on axis %d, but both are %s and must "+
				"agree", a.input, a.size, a.index, valueInfo.Name, got, i, dim.Symbol)
		}
	}

	if limits, ok := integerRanges[valueInfo.Type]; ok {
		for i, v := range values.Ints {
			if v < limits[0] || v > limits[1] {
				return s.errorf("input %q holds %d at element %d, which %s cannot hold", valueInfo.Name, v, i,
					typeName(valueInfo.Type))
			}
		}
	}

	return nil
}

func listed(infos []ValueInfo) string {
	return strings.Join(convert.Slice(infos, ValueInfo.String), ", ")
}

package tensor

import (
	"fmt"
	"slices"
)

// Spec is the name, element type and shape of a tensor, for example in a message.
type Spec struct {
	Name     string
	Int      bool  // int64 elements, otherwise float32
	Shape    []int // -n means a size of at most n
	Optional bool  // it may be missing
}

// Specs are the specifications of all tensors, for example in a message.
type Specs []Spec

// String returns the element type and the shape, as in float32[4 512] and int64[<=9 3].
func (f Spec) String() string {
	sizes := make([]string, len(f.Shape))
	for i, n := range f.Shape {
		if sizes[i] = fmt.Sprint(n); n < 0 {
			sizes[i] = fmt.Sprint("<=", -n)
		}
	}
	return fmt.Sprint(map[bool]string{true: "int64", false: "float32"}[f.Int], sizes)
}

// takes reports whether a tensor matches. The element type of an empty tensor does not matter.
func (f Spec) takes(t Spec) bool {
	fits := func(want, n int) bool { return n == want || want < 0 && n <= -want }
	return (f.Int == t.Int || slices.Contains(t.Shape, 0)) && slices.EqualFunc(f.Shape, t.Shape, fits)
}

// SpecsOf returns the specifications of tensors.
func SpecsOf(m Map) Specs {
	out := make(Specs, 0, len(m))
	for _, name := range m.Names() {
		out = append(out, Spec{Name: name, Int: m[name].IsInt(), Shape: m[name].Shape})
	}
	return out
}

// WithPrefix returns the specifications with a prefix and a slash before their names.
func (specs Specs) WithPrefix(prefix string) Specs {
	out := slices.Clone(specs)
	for i := range out {
		out[i].Name = prefix + "/" + out[i].Name
	}
	return out
}

// Check returns an error if got differs: a tensor is missing, has another element type or shape, or is not specified.
func (specs Specs) Check(got Specs) error {
	has := map[string]Spec{}
	for _, t := range got {
		has[t.Name] = t
	}

	for _, f := range specs {
		t, there := has[f.Name]
		switch {
		case !there && !f.Optional:
			return fmt.Errorf("the tensor %s is missing, which must be %s; the sender runs another experiment", f.Name,
				f)
		case there && !f.takes(t):
			return fmt.Errorf("the tensor %s is %s and must be %s; the sender runs another experiment", f.Name, t, f)
		}
		delete(has, f.Name)
	}

	for _, t := range got {
		if _, more := has[t.Name]; more {
			return fmt.Errorf("the tensor %.100q is not among those that were asked for", t.Name)
		}
	}

	return nil
}

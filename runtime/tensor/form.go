package tensor

import (
	"fmt"
	"slices"
)

// Form is what a tensor can be, as one of a message.
type Form struct {
	Name     string
	Int      bool  // of int64 elements, not of float32
	Shape    []int // -n is a size of at most n
	Optional bool  // it may be missing
}

// Forms are all tensors that something can hold, such as a message.
type Forms []Form

// String is the element type and the shape, as in float32[4 512] and int64[<=9 3].
func (f Form) String() string {
	sizes := make([]string, len(f.Shape))
	for i, n := range f.Shape {
		if sizes[i] = fmt.Sprint(n); n < 0 {
			sizes[i] = fmt.Sprint("<=", -n)
		}
	}
	return fmt.Sprint(map[bool]string{true: "int64", false: "float32"}[f.Int], sizes)
}

// takes tells whether a tensor can be this one; the element type of an empty one is not looked at.
func (f Form) takes(t Form) bool {
	fits := func(want, n int) bool { return n == want || want < 0 && n <= -want }
	return (f.Int == t.Int || slices.Contains(t.Shape, 0)) && slices.EqualFunc(f.Shape, t.Shape, fits)
}

// FormsOf are the forms that tensors have.
func FormsOf(m Map) Forms {
	out := make(Forms, 0, len(m))
	for _, name := range m.Names() {
		out = append(out, Form{Name: name, Int: m[name].IsInt(), Shape: m[name].Shape})
	}
	return out
}

// Under are forms with a prefix and a slash before their names.
func (forms Forms) Under(prefix string) Forms {
	out := slices.Clone(forms)
	for i := range out {
		out[i].Name = prefix + "/" + out[i].Name
	}
	return out
}

// Check finds how tensors differ from these: one that is missing, of another element type or shape,
// or of another name.
func (forms Forms) Check(got Forms) error {
	has := map[string]Form{}
	for _, t := range got {
		has[t.Name] = t
	}
	for _, f := range forms {
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

package tensor

import (
	"maps"
	"math"
	"slices"
	"strings"
)

// Map is a set of named tensors. Its methods visit names in sorted order, so results do not depend on map order.
type Map map[string]*Tensor

// Names returns the names in sorted order.
func (m Map) Names() []string { return slices.Sorted(maps.Keys(m)) }

// Clone copies every tensor.
func (m Map) Clone() Map {
	c := make(Map, len(m))
	for k, t := range m {
		c[k] = t.Clone()
	}
	return c
}

// Axpy adds a*x to m, name by name; a name that m lacks starts at zero.
func (m Map) Axpy(a float64, x Map) Map {
	for _, k := range x.Names() {
		d, ok := m[k]
		if !ok {
			d = New(x[k].Shape...)
			m[k] = d
		}
		d.Axpy(a, x[k])
	}

	return m
}

// Scale multiplies every element by a.
func (m Map) Scale(a float64) Map {
	for _, t := range m {
		for i := range t.Data {
			t.Data[i] = float32(a * float64(t.Data[i]))
		}
	}
	return m
}

// WithoutPrefix returns the tensors named prefix/..., without the prefix; it shares the tensors.
func (m Map) WithoutPrefix(prefix string) Map {
	out := Map{}
	for k, t := range m {
		if rest, ok := strings.CutPrefix(k, prefix+"/"); ok {
			out[rest] = t
		}
	}
	return out
}

// Put stores the tensors of x under prefix/... without copying, and returns m.
func (m Map) Put(prefix string, x Map) Map {
	for k, t := range x {
		m[prefix+"/"+k] = t
	}
	return m
}

// Norm returns the Euclidean norm of all elements.
func (m Map) Norm() float64 {
	squares := 0.0
	for _, name := range m.Names() {
		n := m[name].Norm()
		squares += n * n
	}
	return math.Sqrt(squares)
}

// Count returns the number of elements.
func (m Map) Count() int {
	n := 0
	for _, t := range m {
		n += t.Len()
	}
	return n
}

// Bytes returns the size of all elements in bytes.
func (m Map) Bytes() int {
	n := 0
	for _, t := range m {
		n += t.Bytes()
	}
	return n
}

package graph

import (
	"crypto/sha256"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"promptfed/runtime/convert"
)

// Dim is one dimension of a shape: the number N, or N times a product of symbols if Sym is not empty (Dim{77, "B"} is
// 77*B). Symbols are sizes that are known only at run time.
type Dim struct {
	N   int
	Sym string // factors in sorted order, joined by "*"; a factor that is not a plain name is in parentheses
}

// StaticDim returns the static dimension n.
func StaticDim(n int) Dim { return Dim{N: n} }

// Sym returns the symbolic dimension of a name.
func Sym(name string) Dim { return Dim{N: 1, Sym: name} }

// Static reports whether the size is known while the graph is built.
func (d Dim) Static() bool { return d.Sym == "" }

// BoolDim returns 1 or 0, the element of an integer tensor for a boolean.
func BoolDim(b bool) Dim {
	if b {
		return StaticDim(1)
	}
	return StaticDim(0)
}

// Is reports whether d is the static size n.
func (d Dim) Is(n int) bool { return d.Static() && d.N == n }

func (d Dim) String() string {
	switch {
	case d.Static():
		return fmt.Sprint(d.N)
	case d.N == 1:
		return d.Sym
	}
	return fmt.Sprintf("%d*%s", d.N, d.Sym)
}

// Mul returns the product of two dimensions.
func (d Dim) Mul(e Dim) Dim {
	product := d.N * e.N
	if d.N == 0 || e.N == 0 {
		return StaticDim(0)
	}

	if product/e.N != d.N || product == math.MinInt {
		return opaque("%s*%s", d, e)
	}

	f := append(d.Factors(), e.Factors()...)
	slices.Sort(f)
	return bounded(Dim{product, strings.Join(f, "*")})
}

// Div returns the quotient if it is exact, and false if it is not known to be.
func (d Dim) Div(divisor Dim) (Dim, bool) {
	if divisor.N == 0 || d.N%divisor.N != 0 {
		return Dim{}, false
	}

	f := d.Factors()
	for _, s := range divisor.Factors() {
		i := slices.Index(f, s)
		if i < 0 {
			return Dim{}, false
		}
		f = slices.Delete(f, i, i+1)
	}

	return Dim{d.N / divisor.N, strings.Join(f, "*")}, true
}

// Add returns the sum of two dimensions.
func (d Dim) Add(other Dim) Dim {
	switch {
	case d.Sym == other.Sym:
		return Dim{d.N + other.N, d.Sym}.reduced()
	case d.Static():
		return other.plus(d.N)
	case other.Static():
		return d.plus(other.N)
	case d.String() > other.String():
		d, other = other, d
	}

	return opaque("%s+%s", d, other)
}

// Sub returns the difference of two dimensions.
func (d Dim) Sub(e Dim) Dim {
	switch {
	case d.Sym == e.Sym:
		return Dim{d.N - e.N, d.Sym}.reduced()
	case e.Static():
		return d.plus(-e.N)
	}
	return opaque("%s-%s", d, e)
}

// plus adds a number to a symbolic dimension and merges it with an earlier addend, so (L+1)-1 is L.
func (d Dim) plus(addend int) Dim {
	if i := strings.LastIndexAny(d.Sym, "+-"); d.N == 1 && i > 1 && strings.HasSuffix(d.Sym, ")") && plainSum(d.Sym) {
		if k, err := strconv.Atoi(d.Sym[i : len(d.Sym)-1]); err == nil {
			d, addend = term(d.Sym[1:i]), addend+k
		}
	}

	switch {
	case addend == 0:
		return d
	case addend > 0:
		return opaque("%s+%d", d, addend)
	}

	return opaque("%s%d", d, addend)
}

// plainSum reports whether s is one pair of parentheses around a sum without inner parentheses.
func plainSum(s string) bool {
	return s[0] == '(' && strings.Count(s, "(") == 1 && strings.LastIndexAny(s, "+-") == strings.IndexAny(s, "+-")
}

// term parses a product inside a sum.
func term(s string) Dim {
	n := 1
	if head, rest, ok := strings.Cut(s, "·"); ok {
		if v, err := strconv.Atoi(head); err == nil {
			n, s = v, rest
		}
	}
	return Dim{n, strings.ReplaceAll(s, "·", "*")}
}

func (d Dim) reduced() Dim {
	if d.N == 0 {
		return StaticDim(0)
	}
	return d
}

func opaque(format string, a ...any) Dim {
	return bounded(Sym("(" + strings.ReplaceAll(fmt.Sprintf(format, a...), "*", "·") + ")"))
}

// maxSymbol bounds the length of a symbol. A longer one is replaced by its hash, so that chains of operators do not
// make symbols grow without end.
const maxSymbol = 200

func bounded(d Dim) Dim {
	if len(d.Sym) > maxSymbol {
		h := sha256.Sum256([]byte(d.Sym))
		d.Sym = fmt.Sprintf("(#%x)", h[:8])
	}
	return d
}

// Factors returns the symbols whose product, times N, is the dimension.
func (d Dim) Factors() []string {
	if d.Sym == "" {
		return nil
	}
	return strings.Split(d.Sym, "*")
}

// Shape is a list of dimensions. A nil Shape has unknown rank; rank 0 is Shape{}.
type Shape []Dim

// Static returns a shape of known sizes.
func Static(sizes ...int) Shape {
	return convert.Slice(sizes, StaticDim)
}

// Rows returns a shape of as many rows as a symbol stands for, of known sizes.
func Rows(symbol string, sizes ...int) Shape { return append(Shape{Sym(symbol)}, Static(sizes...)...) }

// Ints returns the sizes if all are static.
func (s Shape) Ints() ([]int, bool) {
	if s == nil {
		return nil, false
	}

	out := make([]int, len(s))
	for i, d := range s {
		if !d.Static() {
			return nil, false
		}
		out[i] = d.N
	}

	return out, true
}

// Size returns the product of the dimensions.
func (s Shape) Size() Dim {
	n := StaticDim(1)
	for _, d := range s {
		n = n.Mul(d)
	}
	return n
}

func (s Shape) String() string {
	if s == nil {
		return "[?]"
	}
	parts := convert.Slice(s, Dim.String)
	return "[" + strings.Join(parts, ",") + "]"
}

// Axis returns the axis from 0 on for an axis that may count from the end.
func Axis(axis, rank int) (int, error) {
	if axis < -rank || axis >= rank {
		return 0, fmt.Errorf("axis %d is outside rank %d", axis, rank)
	}
	if axis < 0 {
		axis += rank
	}
	return axis, nil
}

// Broadcast returns the shape of an element-wise operation on two shapes, by the rule of NumPy and ONNX. A symbol
// against a static size other than 1 is assumed to have that size.
func Broadcast(a, b Shape) (Shape, error) {
	if a == nil || b == nil {
		return nil, nil
	}

	n := max(len(a), len(b))
	out := make(Shape, n)
	for i := range out {
		dimA, dimB := StaticDim(1), StaticDim(1)
		if j := i - (n - len(a)); j >= 0 {
			dimA = a[j]
		}

		if j := i - (n - len(b)); j >= 0 {
			dimB = b[j]
		}

		switch {
		case dimA == dimB, dimB.Is(1):
			out[i] = dimA
		case dimA.Is(1):
			out[i] = dimB
		case dimA.Static() && dimB.Static():
			return nil, fmt.Errorf("%v and %v do not broadcast", a, b)
		case dimA.Static():
			out[i] = dimA
		case dimB.Static():
			out[i] = dimB
		default:
			out[i] = opaque("max(%s,%s)", dimA, dimB)
		}
	}

	return out, nil
}

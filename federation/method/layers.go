package method

import (
	"iter"
	"reflect"
)

// Unwrap returns the method that a wrapper wraps, its field Method; nil for a base method.
func Unwrap(m Method) Method {
	v := reflect.Indirect(reflect.ValueOf(m))
	if v.Kind() != reflect.Struct {
		return nil
	}

	inner := v.FieldByName("Method")
	if !inner.IsValid() || !inner.CanInterface() {
		return nil
	}

	out, _ := inner.Interface().(Method)
	return out
}

// Layers returns the layers of a stack from the outside in: m, the method that m wraps, and so on to the base method.
func Layers(m Method) iter.Seq[Method] {
	return func(yield func(Method) bool) {
		for ; m != nil && yield(m); m = Unwrap(m) {
		}
	}
}

// Any reports whether has accepts the properties of a layer of a stack.
func Any(m Method, has func(Properties) bool) bool {
	for l := range Layers(m) {
		if has(PropertiesOf(l)) {
			return true
		}
	}
	return false
}

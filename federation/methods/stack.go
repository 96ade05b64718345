package methods

import (
	"fmt"
	"reflect"
	"strings"

	"promptfed/federation/method"
)

// inside gives what a wrapper wraps, its field Method; nil for a base method.
func inside(m method.Method) method.Method {
	v := reflect.Indirect(reflect.ValueOf(m))
	if v.Kind() != reflect.Struct {
		return nil
	}
	inner := v.FieldByName("Method")
	if !inner.IsValid() || !inner.CanInterface() {
		return nil
	}
	out, _ := inner.Interface().(method.Method)
	return out
}

// holds tells whether a stack has a layer of type T.
func holds[T method.Method](m method.Method) bool {
	return anyLayer(m, func(l method.Method) bool {
		_, ok := l.(T)
		return ok
	})
}

// anyLayer tells whether a layer of a stack is one that ok accepts.
func anyLayer(m method.Method, ok func(method.Method) bool) bool {
	for ; m != nil; m = inside(m) {
		if ok(m) {
			return true
		}
	}
	return false
}

// nameOf gives the name that a layer has in the table.
func nameOf(m method.Method) string {
	for _, d := range table {
		if reflect.TypeOf(d.New()).Elem() == reflect.Indirect(reflect.ValueOf(m)).Type() {
			return d.Name
		}
	}
	return fmt.Sprintf("%T", m)
}

// mustLearn refuses a wrapper, which does something, over a base method that learns nothing.
func mustLearn(inner method.Method, does string) error {
	if len(inner.Params(anywhere)) == 0 {
		return fmt.Errorf("it %s, but the base method learns nothing; remove it", does)
	}
	return nil
}

// SharedNames lists the parameters of a method that the server averages.
func SharedNames(m method.Method) []string {
	var out []string
	for _, p := range m.Params(anywhere) {
		if p.Owner == method.Shared {
			out = append(out, p.Name)
		}
	}
	return out
}

// anywhere is a task to ask a method what it declares before the real one is known. Its towers take every parameter
// that a method may have.
var anywhere = method.ClientSpec{Clients: 1, Classes: 2, Width: 8, Dim: 8, Patches: 4, Scale: 1, ImageSize: 32,
	VisionWidth: 8, VisionLayers: 2, VisionUnits: 8, TextLayers: 2, TextUnits: 8, Tokens: 16}

// fits refuses a wrapper whose loss cannot be built over a base method whose own can, unless err does already. Where
// that cannot be built here either, sizes of the real task may be what it lacks.
func fits(m, inner method.Method, err error) error {
	graphs := func(m method.Method) error {
		s := method.NewScope(anywhere, m.Params(anywhere))
		m.Loss(s, m.Logits(s))
		return s.Graph().Err()
	}
	if err != nil || graphs(inner) != nil {
		return err
	}
	return graphs(m)
}

// sharing says what a base method shares, for errors.
func sharing(names []string) string {
	if len(names) == 0 {
		return "nothing"
	}
	if more := len(names) - 6; more > 0 {
		return strings.Join(names[:6], ", ") + fmt.Sprintf(" and %d more", more)
	}
	return strings.Join(names, ", ")
}

// Reproduces lists the options of a method and its wrappers that make a known defect of published code again on
// purpose, as "options.KEY: VALUE", outer to inner: those whose field has a tag "defect" with that value.
func Reproduces(m method.Method) []string {
	var out []string
	for v := reflect.ValueOf(m); v.IsValid() && v.Kind() == reflect.Struct; {
		for i := range v.NumField() {
			tag := v.Type().Field(i).Tag
			if defect, ok := tag.Lookup("defect"); ok && fmt.Sprint(v.Field(i)) == defect {
				out = append(out, "options."+tag.Get("config")+": "+defect)
			}
		}
		if v = v.FieldByName("Method"); v.IsValid() && v.Kind() == reflect.Interface {
			v = v.Elem()
		}
	}
	return out
}

package methods

import (
	"fmt"
	"reflect"
	"strings"

	"promptfed/federation/method"
)

// find gives the outermost layer of type T of a stack. Wrappers hold what they wrap in a field Method.
func find[T method.Method](m method.Method) (T, bool) {
	var none T
	for m != nil {
		if t, ok := m.(T); ok {
			return t, true
		}
		v := reflect.ValueOf(m)
		if v.Kind() != reflect.Struct {
			break
		}
		inner := v.FieldByName("Method")
		if !inner.IsValid() || !inner.CanInterface() {
			break
		}
		m, _ = inner.Interface().(method.Method)
	}
	return none, false
}

// holds tells whether a stack has a layer of type T.
func holds[T method.Method](m method.Method) bool {
	_, ok := find[T](m)
	return ok
}

// sharedNames lists the parameters of a method that the server averages.
func sharedNames(m method.Method) []string {
	return named(m, func(p method.Param) bool { return p.Owner == method.Shared })
}

// paramNames lists all parameters of a method.
func paramNames(m method.Method) []string { return named(m, func(method.Param) bool { return true }) }

// anywhere is a task to ask a method what it declares before the real one is known.
var anywhere = method.Task{Clients: 1, Classes: 2, Width: 8, Dim: 8, Patches: 4, Scale: 1, ImageSize: 32,
	VisionWidth: 8, VisionLayers: 2}

// fits refuses a wrapper whose loss cannot be built over a carrier whose own can. Where that cannot be built here
// either, sizes of the real task may be what it lacks.
func fits(m, inner method.Method) error {
	graphs := func(m method.Method) error {
		s := method.NewScope(anywhere, m.Params(anywhere))
		m.Loss(s, m.Logits(s))
		return s.Graph().Err()
	}
	if graphs(inner) != nil {
		return nil
	}
	return graphs(m)
}

func named(m method.Method, ok func(method.Param) bool) []string {
	var out []string
	for _, p := range m.Params(anywhere) {
		if ok(p) {
			out = append(out, p.Name)
		}
	}
	return out
}

// sharing says what a carrier shares, for errors.
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

package layer

import (
	"reflect"

	"promptfed/federation/configtags"
	"promptfed/federation/methods/parts/check"
)

// bounds are the named bounds of options. They keep a mistyped number from filling the memory.
var bounds = map[string]float64{
	"":       check.MaxWeight,
	"tokens": 1024, // of a prompt; no text tower has so long a context
	"hidden": 1 << 16,
	"steps":  1 << 20,
}

// checkOptions returns an error for values that tags do not allow, or that Checkers refuse.
func checkOptions(v reflect.Value) error {
	keys := configtags.Keys(v)
	var err error
	for _, k := range keys {
		if k.Value.Kind() == reflect.Slice && k.Value.Len() == 0 && k.Field.Tag.Get("in") != "" {
			err = check.Join(err, check.OptionErrorf(k.Name, " is empty; give at least one value"))
		}
		err = check.Join(err, k.Check(k.Name, "option "+k.Name+" is", keys, bounds))
	}

	return check.Join(err, checkers(v, map[string]bool{}))
}

// checkers asks a struct and the structs of options in it. An embedded Checker is its struct's too, and is asked once.
func checkers(v reflect.Value, said map[string]bool) (err error) {
	for i := range v.NumField() {
		if v.Type().Field(i).Tag.Get("config") == ",squash" {
			err = check.Join(err, checkers(v.Field(i), said))
		}
	}

	if c, ok := v.Interface().(Checker); ok {
		if wrong := c.Check(); wrong != nil && !said[wrong.Error()] {
			said[wrong.Error()] = true
			err = check.Join(err, wrong)
		}
	}

	return err
}

package layer

import (
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"

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
		if in, ok := k.Field.Tag.Lookup("in"); ok {
			err = check.Join(err, checkOption(k.Name, k.Value, in, keys))
		}
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

// checkOption checks a value by a tag: words "a|b", a range "0..1", or numbers and ranges, as "0|1..10". A bound is a
// number, a name of bounds, or the name of another option; "0<..1" leaves out 0. Each entry of a list must be allowed,
// and a list has at least one.
func checkOption(name string, v reflect.Value, in string, keys []configtags.Key) error {
	parts := strings.Split(in, "|")
	switch v.Kind() {
	case reflect.Slice:
		err := error(nil)
		if v.Len() == 0 {
			err = fmt.Errorf("option %s is empty; give at least one value", name)
		}
		for i := range v.Len() {
			err = check.Join(err, checkOption(name, v.Index(i), in, keys))
		}
		return err
	case reflect.String:
		if slices.Contains(parts, v.String()) {
			return nil
		}
		return fmt.Errorf("option %s is %q; it must be one of %s", name, v.String(), strings.Join(parts, ", "))
	}
	var texts []string
	for _, p := range parts {
		lo, hi, isRange := strings.Cut(p, "..")
		if !isRange {
			hi = lo
		}
		lo, above := strings.CutSuffix(lo, "<")
		x, from, to := number(v), bound(lo, keys), bound(hi, keys)
		if x >= from && x <= to && !(above && x == from) {
			return nil
		}
		switch {
		case above:
			texts = append(texts, fmt.Sprintf("be above %v and at most %v", like(v, from), like(v, to)))
		case isRange:
			texts = append(texts, fmt.Sprintf("lie between %v and %v", like(v, from), like(v, to)))
		default:
			texts = append(texts, fmt.Sprintf("be %v", like(v, from)))
		}
	}
	return fmt.Errorf("option %s is %v; it must %s", name, v.Interface(), strings.Join(texts, " or "))
}

// bound returns the number of a bound.
func bound(s string, keys []configtags.Key) float64 {
	if b, ok := bounds[s]; ok {
		return b
	}
	if x, err := strconv.ParseFloat(s, 64); err == nil {
		return x
	}
	return number(keys[slices.IndexFunc(keys, func(k configtags.Key) bool { return k.Name == s })].Value)
}

func number(v reflect.Value) float64 {
	if v.CanInt() {
		return float64(v.Int())
	}
	return v.Float()
}

// like returns a number in the type of a value.
func like(v reflect.Value, x float64) any { return reflect.ValueOf(x).Convert(v.Type()).Interface() }

package configtags

import (
	"errors"
	"fmt"
	"math"
	"reflect"
	"slices"
	"strconv"
	"strings"
)

// Check returns an error for the values of a section's keys that their tags do not allow; at is the section's name and
// a dot. Sections inside it have checks of their own.
func Check(at string, section any) error {
	var errs []error
	keys := Keys(reflect.ValueOf(section))
	for _, k := range keys {
		errs = append(errs, k.Check(at+k.Name, at+k.Name+":", keys, nil))
	}
	return errors.Join(errs...)
}

// Check returns an error for a value that the key's tag "in" does not allow: words "a|b", a range "0..1", or numbers
// and ranges, as "0|1..10". A bound is a number, a name of bounds, or the name of one of the other keys; "0<..1" leaves
// out 0, and "0.." has no upper bound unless bounds has one without a name. Each entry of a list must be allowed. The
// error is a KeyError of key, whose text begins with is, before the value.
func (k Key) Check(key, is string, keys []Key, bounds map[string]float64) error {
	in, ok := k.Field.Tag.Lookup("in")
	if !ok {
		return nil
	}

	parts, value := strings.Split(in, "|"), k.Value
	switch value.Kind() {
	case reflect.Slice:
		for i := range value.Len() {
			k.Value = value.Index(i)
			if err := k.Check(key, is, keys, bounds); err != nil {
				return err
			}
		}
		return nil
	case reflect.String:
		if slices.Contains(parts, value.String()) {
			return nil
		}
		return &KeyError{key, fmt.Errorf("%s %q; %s", is, value.String(), Suggest(value.String(), parts, ""))}
	}

	var texts []string
	for _, p := range parts {
		lo, hi, isRange := strings.Cut(p, "..")
		if !isRange {
			hi = lo
		}

		lo, above := strings.CutSuffix(lo, "<")
		x, from, to := number(value), bound(lo, keys, bounds), bound(hi, keys, bounds)
		if x >= from && x <= to && !(above && x == from) {
			return nil
		}

		switch {
		case above:
			texts = append(texts, fmt.Sprintf("be above %v and at most %v", k.like(from), k.like(to)))
		case math.IsInf(to, 1):
			texts = append(texts, fmt.Sprintf("be %v or more", k.like(from)))
		case isRange:
			texts = append(texts, fmt.Sprintf("lie between %v and %v", k.like(from), k.like(to)))
		default:
			texts = append(texts, fmt.Sprintf("be %v", k.like(from)))
		}
	}

	return &KeyError{key, fmt.Errorf("%s %v; it must %s", is, value.Interface(), strings.Join(texts, " or "))}
}

// bound returns the number of a bound.
func bound(text string, keys []Key, bounds map[string]float64) float64 {
	if b, ok := bounds[text]; ok {
		return b
	}

	if text == "" {
		return math.Inf(1)
	}

	if x, err := strconv.ParseFloat(text, 64); err == nil {
		return x
	}

	return number(keys[slices.IndexFunc(keys, func(k Key) bool { return k.Name == text })].Value)
}

func number(v reflect.Value) float64 {
	if v.CanInt() {
		return float64(v.Int())
	}
	return v.Float()
}

// like returns a number in the type of a key.
func (k Key) like(x float64) any { return reflect.ValueOf(x).Convert(k.Value.Type()).Interface() }

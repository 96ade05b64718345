package facts

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"promptfed/runtime/convert"
)

// Requirement is a condition on one fact, or on one key of the configuration.
type Requirement struct {
	Key, Op, Value string // no operator: it must be on
}

var requirement = regexp.MustCompile(`^([a-z][a-z0-9_.]*)\s*(?:(!=|<=|>=|=|<|>)\s*([^\s=<>!]\S*))?$`)

// ParseRequirements reads conditions with commas between them: KEY, or KEY with one of = != <= >= < > and a value. It
// does not check the names of keys.
func ParseRequirements(text string) ([]Requirement, error) {
	var out []Requirement
	for part := range strings.SplitSeq(text, ",") {
		if part = strings.TrimSpace(part); part == "" {
			continue
		}
		m := requirement.FindStringSubmatch(part)
		if m == nil {
			return nil, fmt.Errorf("%q is not a condition; write KEY for what must be on, or KEY=VALUE, also with "+
				"!=, <=, >=, < or >", part)
		}
		r := Requirement{m[1], m[2], m[3]}
		if _, ok := numeral(r.Value); !ok && strings.ContainsAny(r.Op, "<>") {
			return nil, fmt.Errorf("%q compares with %q, which is not a number", part, r.Value)
		}
		out = append(out, r)
	}

	if text != "" && len(out) == 0 {
		return nil, fmt.Errorf("--require %q has no condition; write KEY or KEY=VALUE, or leave it out", text)
	}

	return out, nil
}

// numeral reads a number as people write it: infinite is the Text of no bound.
func numeral(text string) (v float64, ok bool) {
	if text == "infinite" {
		return math.Inf(1), true
	}
	v, err := strconv.ParseFloat(text, 64)
	return v, err == nil && !math.IsNaN(v)
}

// String returns the condition in its written form, without spaces.
func (r Requirement) String() string { return r.Key + r.Op + r.Value }

// Holds reports whether a value is as required. Of a missing value, as of a layer that is off, only != holds. A list is
// equal to each of its elements.
func (r Requirement) Holds(value any) bool {
	switch r.Op {
	case "":
		return on(value)
	case "=":
		return r.equals(value)
	case "!=":
		return !r.equals(value)
	}

	have, isNumber := number(value)
	want, ok := numeral(r.Value)
	if !isNumber || !ok {
		return false
	}

	switch r.Op {
	case "<":
		return have < want
	case "<=":
		return have <= want
	case ">":
		return have > want
	}

	return have >= want
}

func (r Requirement) equals(value any) bool {
	switch v := value.(type) {
	case nil:
		return r.Value == "none"
	case bool:
		return slices.Contains(map[bool][]string{true: {"true", "on"}, false: {"false", "off"}}[v], r.Value)
	case []string:
		return slices.Contains(v, r.Value) || len(v) == 0 && r.Value == "none"
	}

	if have, ok := number(value); ok {
		want, ok := numeral(r.Value)
		return ok && have == want
	}

	return fmt.Sprint(value) == r.Value
}

// onOff are the values that a condition on a switch may have.
var onOff = []string{"on", "off", "true", "false"}

func on(value any) bool {
	switch v := value.(type) {
	case nil:
		return false
	case bool:
		return v
	case []string:
		return len(v) > 0
	case string:
		return v != "" && v != "none" && v != "off"
	}

	n, ok := number(value)
	return ok && n != 0
}

func number(value any) (float64, bool) {
	switch v := value.(type) {
	case int:
		return float64(v), true
	case uint64:
		return float64(v), true
	case float64:
		return v, !math.IsNaN(v)
	}

	return 0, false
}

// Meets checks conditions against facts, and against keys of the configuration if no fact has the name. The error has
// a line for each condition that does not hold, with the value of whose, such as "the server".
func (f Facts) Meets(list []Requirement, keys map[string]any, whose string) error {
	var errs []error
	for _, r := range list {
		fact, ok := f.Find(r.Key)
		if !ok {
			fact.Name = r.Key
			if fact.Value, ok = keys[r.Key]; !ok {
				return f.Unknown(r.Key)
			}
		}
		_, isNumber := number(fact.Value)
		_, isSwitch := fact.Value.(bool)
		if isSwitch && r.Op != "" && !slices.Contains(onOff, r.Value) {
			errs = append(errs, fmt.Errorf("--require %s: %s is on or off, %q is neither", r, r.Key, r.Value))
		} else if _, ok := numeral(r.Value); isNumber && !ok && r.Op != "" && r.Value != "none" {
			errs = append(errs, fmt.Errorf("--require %s: %s is a number, %q is none", r, r.Key, r.Value))
		} else if !r.Holds(fact.Value) {
			errs = append(errs, fmt.Errorf("--require %s does not hold: %s has %s: %s", r, whose, r.Key, fact.Text()))
		}
	}

	return errors.Join(errs...)
}

// Unknown returns the error of an unknown name, with the names that a requirement may have.
func (f Facts) Unknown(name string) error {
	names := convert.Slice(f, func(fact Fact) string { return fact.Name })
	return fmt.Errorf("--require %s: unknown key; known are %s, and all keys of the configuration, such as "+
		"train.epochs or options.NAME", name, strings.Join(names, ", "))
}

// Fact is one thing that is known of an experiment across machines before training: what runs, and under which
// protection. A client's conditions (Requirement), the facts that it is shown and the server's status use the same
// facts.
type Fact struct {
	Name  string
	Value any // bool, string, int, float64 (+Inf for no bound) or []string; nil where there is nothing to tell
	Help  string
}

// Text returns the value for people: none, on or off, infinite, a number of four digits, or a list with commas.
func (f Fact) Text() string {
	switch value := f.Value.(type) {
	case nil:
		return "none"
	case bool:
		return map[bool]string{true: "on", false: "off"}[value]
	case float64:
		if math.IsInf(value, 1) {
			return "infinite"
		}
		return strconv.FormatFloat(value, 'g', 4, 64)
	case []string:
		if len(value) == 0 {
			return "none"
		}
		return strings.Join(value, ", ")
	}

	return fmt.Sprint(f.Value)
}

// MarshalJSON writes name and value; an epsilon without a bound is the text infinite, since JSON has no such number.
func (f Fact) MarshalJSON() ([]byte, error) {
	value := f.Value
	if v, ok := value.(float64); ok && math.IsInf(v, 0) {
		value = f.Text()
	}

	return json.Marshal(struct {
		Name  string `json:"name"`
		Value any    `json:"value"`
	}{f.Name, value})
}

// UnmarshalJSON reads the output of MarshalJSON; lists are of text, numbers float64.
func (f *Fact) UnmarshalJSON(b []byte) error {
	var decoded struct {
		Name  string `json:"name"`
		Value any    `json:"value"`
	}
	if err := json.Unmarshal(b, &decoded); err != nil {
		return err
	}

	if list, ok := decoded.Value.([]any); ok {
		texts := make([]string, len(list))
		for i, x := range list {
			texts[i] = fmt.Sprint(x)
		}
		decoded.Value = texts
	}

	f.Name, f.Value = decoded.Name, decoded.Value
	return nil
}

// Facts are all facts of one experiment, each name once.
type Facts []Fact

// Find returns the fact of a name, and whether there is one.
func (f Facts) Find(name string) (Fact, bool) {
	for _, x := range f {
		if x.Name == name {
			return x, true
		}
	}
	return Fact{}, false
}

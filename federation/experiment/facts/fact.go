package facts

import (
	"encoding/json"
	"fmt"
	"math"
	"strconv"
	"strings"
)

// Fact is one thing that is known of an experiment across machines before training: what runs, and under which
// protection. A client's conditions (Requirement), the facts that it is shown and the server's status use the same
// facts.
type Fact struct {
	Name  string
	Value any // bool, string, int, float64 (+Inf for no bound) or []string; nil where there is nothing to tell
	Help  string
}

func (f Fact) Text() string {
	switch v := f.Value.(type) {
	case nil:
		return "none"
	case bool:
		return map[bool]string{true: "on", false: "off"}[v]
	case float64:
		if math.IsInf(v, 1) {
			return "infinite"
		}
		return strconv.FormatFloat(v, 'g', 4, 64)
	case []string:
		if len(v) == 0 {
			return "none"
		}
		return strings.Join(v, ", ")
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
	var v struct {
		Name  string `json:"name"`
		Value any    `json:"value"`
	}
	if err := json.Unmarshal(b, &v); err != nil {
		return err
	}
	if list, ok := v.Value.([]any); ok {
		texts := make([]string, len(list))
		for i, x := range list {
			texts[i] = fmt.Sprint(x)
		}
		v.Value = texts
	}
	f.Name, f.Value = v.Name, v.Value
	return nil
}

type Facts []Fact

func (f Facts) Find(name string) (Fact, bool) {
	for _, x := range f {
		if x.Name == name {
			return x, true
		}
	}
	return Fact{}, false
}

package metrics

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// Evaluation holds the results of a test with one kind of parameters, the server's (global) or each client's own
// (personal).
type Evaluation struct {
	Values    map[string]float64 // by name of the metric; one that the test does not have is absent
	PerClient []float64          // accuracies of the clients that answered, in order
	PerDomain map[string]float64 // mean accuracy over the clients of a domain
}

// Evaluate merges what clients sent, sorted by client. Its result is nil without clients.
func Evaluate(clients []Client) *Evaluation {
	if len(clients) == 0 {
		return nil
	}

	evaluation := &Evaluation{Values: map[string]float64{}, PerClient: each(clients, accuracyOf),
		PerDomain: perDomain(clients)}
	for _, d := range definitions {
		if d.Value == nil {
			continue
		}
		have := slices.DeleteFunc(slices.Clone(clients), func(c Client) bool { return !c.has(d.Statistics) })
		if len(have) == 0 {
			continue
		}
		if v, ok := d.Value(have); ok {
			evaluation.Values[d.Name] = v
		}
	}

	return evaluation
}

// Value returns a metric by its name; false where the evaluation is nil or does not have it.
func (e *Evaluation) Value(name string) (float64, bool) {
	if e == nil {
		return 0, false
	}
	v, ok := e.Values[name]
	return v, ok
}

// Accuracy returns the mean accuracy over clients, from 0 to 1. e must not be nil.
func (e *Evaluation) Accuracy() float64 { return e.Values[Accuracy] }

// OnValidation is the evaluation of validation data, which has less details; nil of nil.
func (e *Evaluation) OnValidation() *Evaluation {
	if e == nil {
		return nil
	}

	out := &Evaluation{Values: map[string]float64{}, PerClient: e.PerClient}
	for _, d := range definitions {
		if v, ok := e.Value(d.Name); ok && d.Validation {
			out.Values[d.Name] = v
		}
	}

	return out
}

// OmitLabels removes the metrics of statistics that reveal labels, which only the round that is the result has.
func (e *Evaluation) OmitLabels() {
	for _, d := range definitions {
		if d.revealsLabels() {
			delete(e.Values, d.Name)
		}
	}
}

// Check refuses values outside of their metrics' bounds.
func (e *Evaluation) Check() error {
	for _, d := range definitions {
		if v, ok := e.Value(d.Name); ok && !d.within(v) {
			return fmt.Errorf("has the %s %v, which is not between %v and %v", d.Name, v, d.Low, d.High)
		}
	}

	for _, v := range slices.Concat(e.PerClient, slices.Collect(maps.Values(e.PerDomain))) {
		if !(v >= 0 && v <= 1+rounding) {
			return fmt.Errorf("has the accuracy %v, which is not between 0 and 1", v)
		}
	}

	return nil
}

// rounding is how far a sum of floating point numbers may be beyond a bound.
const rounding = 1e-9

func (d Definition) within(v float64) bool { return v >= d.Low-rounding && v <= d.High+rounding }

// Keys of an evaluation in records, beside those of its metrics.
const (
	perClientKey = "per_client"
	perDomainKey = "per_domain"
)

// MarshalJSON writes the metrics in the order of their columns, then accuracies by client and by domain.
func (e Evaluation) MarshalJSON() ([]byte, error) { return MarshalWith(struct{}{}, &e) }

// MarshalWith returns the JSON of an object with the keys of an evaluation, which may be nil, behind its own.
func MarshalWith(object any, evaluation *Evaluation) ([]byte, error) {
	out, err := json.Marshal(object)
	if err != nil || evaluation == nil {
		return out, err
	}

	out = bytes.TrimSuffix(out, []byte("}"))
	add := func(key string, value any) {
		var text []byte
		if text, err = json.Marshal(value); err == nil {
			out = fmt.Appendf(out, "%s%q:%s", strings.Repeat(",", min(1, len(out)-1)), key, text)
		}
	}

	for _, d := range definitions {
		if v, ok := evaluation.Values[d.Name]; ok && err == nil {
			add(d.Key, v)
		}
	}

	if len(evaluation.PerClient) > 0 && err == nil {
		add(perClientKey, evaluation.PerClient)
	}

	if len(evaluation.PerDomain) > 0 && err == nil {
		add(perDomainKey, evaluation.PerDomain)
	}

	return append(out, '}'), err
}

func (e *Evaluation) UnmarshalJSON(b []byte) error {
	read, err := ReadEvaluation(b)
	if err == nil && read != nil {
		*e = *read
	}
	return err
}

// ReadEvaluation reads an evaluation whose keys stand among those of a JSON object; nil where it has none of them.
func ReadEvaluation(object []byte) (*Evaluation, error) {
	var keys map[string]json.RawMessage
	if err := json.Unmarshal(object, &keys); err != nil {
		return nil, err
	}

	evaluation, some := &Evaluation{Values: map[string]float64{}}, false
	read := func(key string, into any) error {
		text, ok := keys[key]
		if !ok || string(text) == "null" {
			return nil
		}
		some = true
		if err := json.Unmarshal(text, into); err != nil {
			return fmt.Errorf("%s: %w", key, err)
		}
		return nil
	}

	for _, d := range definitions {
		if d.Value == nil {
			continue
		}
		var v *float64
		if err := read(d.Key, &v); err != nil {
			return nil, err
		}
		if v != nil {
			evaluation.Values[d.Name] = *v
		}
	}

	if err := read(perClientKey, &evaluation.PerClient); err != nil {
		return nil, err
	}

	if err := read(perDomainKey, &evaluation.PerDomain); err != nil || !some {
		return nil, err
	}

	return evaluation, nil
}

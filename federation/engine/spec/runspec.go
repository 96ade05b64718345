package spec

import (
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"

	"promptfed/federation/method"
	"promptfed/runtime/numerics"
)

// RunSpec holds the settings that all sides of an experiment must share, with any data and on any machine. All of it
// may be shown.
type RunSpec struct {
	Method         string   `json:"method" what:"method"`   // base method and wrappers
	Options        string   `json:"options" what:"options"` // of all layers
	Seed           uint64   `json:"seed" what:"seed"`
	Training       string   `json:"training" what:"training"`
	Classes        []string `json:"classes" what:"classes"`
	Template       string   `json:"template" what:"template"`
	EvaluationSets []string `json:"sets" what:"evaluation sets"`                               // by name
	Secure         string   `json:"secure,omitempty" what:"secure aggregation"`                // empty for none
	Privacy        string   `json:"privacy,omitempty" what:"differential privacy"`             // what epsilons assume
	Precision      string   `json:"precision,omitempty" what:"data.precision (empty is half)"` // of features
}

// OwnBackbone is a backbone that a server has files of, which its clients must have too.
type OwnBackbone struct {
	Dir    string
	Task   method.ClientSpec // with the name of the backbone
	Digest string            // of its files
	// Tokens is the digest of the text tokens of classes with a template.
	Tokens func(classes []string, template string) (string, error)
}

func (e *Experiment) RunSpec() RunSpec {
	t := RunSpec{Method: e.MethodName, Options: e.Options, Seed: e.Plan.Seed, Training: fmt.Sprintf("%+v", e.Training),
		Classes: slices.Clone(e.Classes), Template: e.Template, Secure: e.Secure, Privacy: e.Privacy,
		Precision: e.otherPrecision()}
	for _, x := range e.EvaluationSets {
		t.EvaluationSets = append(t.EvaluationSets, x.Name)
	}
	return t
}

// String returns equal texts for equal specs only.
func (t RunSpec) String() string {
	t.Classes, t.EvaluationSets = append([]string{}, t.Classes...), append([]string{}, t.EvaluationSets...)
	b, err := json.Marshal(t)
	if err != nil { // of strings and a number there is none
		panic(err)
	}
	return string(b)
}

// Mismatch returns, in one line, how the spec of a client differs from that of the server; nil if it does not.
func (t RunSpec) Mismatch(client RunSpec) error {
	return t.MismatchOf("the server", client, "the client")
}

// MismatchOf returns, in one line, how mine differs from the spec of another side; nil if it does not.
func (t RunSpec) MismatchOf(mine string, other RunSpec, others string) error {
	a, b := reflect.ValueOf(t), reflect.ValueOf(other)
	for i := range a.NumField() {
		if x, y := a.Field(i), b.Field(i); fmt.Sprintf("%q", x) != fmt.Sprintf("%q", y) {
			return fmt.Errorf("%s: %s has %s, %s %s", a.Type().Field(i).Tag.Get("what"), mine,
				short(fmt.Sprintf("%.400q", x)), others, short(fmt.Sprintf("%.400q", y)))
		}
	}
	return nil
}

// short shortens a list, such as one of a thousand classes.
func short(s string) string {
	if len(s) > 600 {
		return s[:600] + "..."
	}
	return s
}

// Compatibility holds the properties that two machines must share for equal results of a client's turn. If only
// Numerics differ, the results differ in their last digits.
type Compatibility struct {
	Program     string               `json:"program"`     // version
	Fingerprint string               `json:"fingerprint"` // of the experiment with all its clients
	RunSpec     RunSpec              `json:"terms"`
	Digests     map[string]string    `json:"digests"`  // of data and backbones, by what they are of
	Numerics    numerics.Fingerprint `json:"numerics"` // of the sessions of training steps
}

// Mismatch returns, in one line, why a worker cannot run the turns of a run; nil where it can. Other numerics are no
// reason.
func (f Compatibility) Mismatch(worker Compatibility) error {
	if f.Program != worker.Program {
		return fmt.Errorf("program: the run has version %.40s, the worker %.40s; use the same build on both sides",
			f.Program, worker.Program)
	}
	if err := f.RunSpec.Mismatch(worker.RunSpec); err != nil {
		return fmt.Errorf("%w (here the client is the worker)", err)
	}
	for _, what := range slices.Sorted(maps.Keys(f.Digests)) {
		if mine := worker.Digests[what]; mine != f.Digests[what] {
			return fmt.Errorf("%s: the run has digest %.12s, the worker %.12s; give the worker the same files", what,
				f.Digests[what], mine)
		}
	}
	if f.Fingerprint != worker.Fingerprint {
		return fmt.Errorf("fingerprint: the run has %.12s, the worker %.12s: partition, participation or backbones "+
			"differ", f.Fingerprint, worker.Fingerprint)
	}
	return nil
}

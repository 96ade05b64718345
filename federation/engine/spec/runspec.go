package spec

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"

	"promptfed/runtime/numerics"
)

// RunSpec holds the settings that all sides of an experiment must share, with any data and on any machine. All of it
// may be shown.
type RunSpec struct {
	Method         string   `json:"method"`  // base method and wrappers
	Options        string   `json:"options"` // of all layers
	Seed           uint64   `json:"seed"`
	Training       string   `json:"training"`
	Classes        []string `json:"classes"`
	Template       string   `json:"template"`
	EvaluationSets []string `json:"sets"`             // by name
	Secure         string   `json:"secure,omitempty"` // secure aggregation; empty for none

	Privacy   string `json:"privacy,omitempty"`   // what epsilons assume; empty for none
	Precision string `json:"precision,omitempty"` // of features; empty for half
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
	for _, f := range []struct {
		what        string
		mine, other any
	}{
		{"method", t.Method, other.Method}, {"options", t.Options, other.Options}, {"seed", t.Seed, other.Seed},
		{"training", t.Training, other.Training}, {"classes", t.Classes, other.Classes}, {"template", t.Template,
			other.Template},
		{"evaluation sets", t.EvaluationSets, other.EvaluationSets}, {"secure aggregation", t.Secure, other.Secure},
		{"differential privacy", t.Privacy, other.Privacy},
		{"data.precision (empty is half)", t.Precision, other.Precision},
	} {
		if fmt.Sprintf("%q", f.mine) != fmt.Sprintf("%q", f.other) {
			return fmt.Errorf("%s: %s has %s, %s %s", f.what, mine, short(fmt.Sprintf("%.400q", f.mine)), others,
				short(fmt.Sprintf("%.400q", f.other)))
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

package spec

import (
	"encoding/json"
	"fmt"
	"slices"
)

// RunSpec are what every side of an experiment must agree on, whatever data and whatever machine it has. All of it may
// be shown.
type RunSpec struct {
	Method         string   `json:"method"`  // base method and wrappers
	Options        string   `json:"options"` // of all layers
	Seed           uint64   `json:"seed"`
	Training       string   `json:"training"`
	Classes        []string `json:"classes"`
	Template       string   `json:"template"`
	EvaluationSets []string `json:"exams"`            // by name
	Secure         string   `json:"secure,omitempty"` // secure aggregation; empty for none

	Privacy   string `json:"privacy,omitempty"`   // what epsilons assume; empty for none
	Precision string `json:"precision,omitempty"` // of features; empty for half
}

// RunSpec are those of an experiment.
func (e *Experiment) RunSpec() RunSpec {
	t := RunSpec{Method: e.MethodName, Options: e.Options, Seed: e.Plan.Seed, Training: fmt.Sprintf("%+v", e.Training),
		Classes: slices.Clone(e.Classes), Template: e.Template, Secure: e.Secure, Privacy: e.Privacy,
		Precision: e.otherPrecision()}
	for _, x := range e.EvaluationSets {
		t.EvaluationSets = append(t.EvaluationSets, x.Name)
	}
	return t
}

// String is the same for the same terms, and for no others.
func (t RunSpec) String() string {
	t.Classes, t.EvaluationSets = append([]string{}, t.Classes...), append([]string{}, t.EvaluationSets...)
	b, err := json.Marshal(t)
	if err != nil { // of strings and a number there is none
		panic(err)
	}
	return string(b)
}

// Mismatch says in one line where the terms of a client differ from those of the server; nil where they do not.
func (t RunSpec) Mismatch(client RunSpec) error {
	for _, f := range []struct {
		what         string
		server, mine any
	}{
		{"method", t.Method, client.Method}, {"options", t.Options, client.Options}, {"seed", t.Seed, client.Seed},
		{"training", t.Training, client.Training}, {"classes", t.Classes, client.Classes}, {"template", t.Template,
			client.Template},
		{"evaluation sets", t.EvaluationSets, client.EvaluationSets}, {"secure aggregation", t.Secure, client.Secure},
		{"differential privacy", t.Privacy, client.Privacy},
		{"data.precision (empty is half)", t.Precision, client.Precision},
	} {
		if a, b := fmt.Sprintf("%.400q", f.server), fmt.Sprintf("%.400q", f.mine); fmt.Sprintf("%q",
			f.server) != fmt.Sprintf("%q", f.mine) {
			return fmt.Errorf("%s: the server has %s, the client %s", f.what, short(a), short(b))
		}
	}
	return nil
}

// short keeps a list of a thousand classes from filling the screen.
func short(s string) string {
	if len(s) > 600 {
		return s[:600] + "..."
	}
	return s
}

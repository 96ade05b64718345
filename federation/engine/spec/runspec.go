package spec

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

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

// RunSpec returns the settings of the experiment that a server and its clients compare.
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
	_, lines := t.Compare(mine, other, others)
	return cmp.Or(lines...)
}

// Compare returns the fields that mine and the spec of another side have with one value, and a line for each other one.
// Of lists a line has only what one of the two lacks, or where their order differs.
func (t RunSpec) Compare(mine string, other RunSpec, others string) (same []string, lines []error) {
	a, b := reflect.ValueOf(t), reflect.ValueOf(other)
	for i := range a.NumField() {
		x, y := a.Field(i).Interface(), b.Field(i).Interface()
		what := a.Type().Field(i).Tag.Get("what")
		if equal(x, y) && !a.Field(i).IsZero() {
			same = append(same, what)
		}
		if equal(x, y) {
			continue
		}
		has := fmt.Sprintf("%s has %s, %s %s", mine, short(x), others, short(y))
		if list, ok := x.([]string); ok {
			has = differ(mine, list, others, y.([]string))
		}
		lines = append(lines, fmt.Errorf("%s: %s", what, has))
	}

	return same, lines
}

// FixedBy returns the spec of a server's configuration with what it leaves open as a client has it.
func (t RunSpec) FixedBy(client RunSpec) RunSpec {
	if len(t.Classes) == 0 {
		t.Classes = client.Classes
	}
	t.Template, t.EvaluationSets = cmp.Or(t.Template, client.Template), client.EvaluationSets
	return t
}

// differ describes how two lists differ: what each has alone, or else their order.
func differ(mine string, x []string, others string, y []string) string {
	i := 0
	for i < min(len(x), len(y)) && x[i] == y[i] {
		i++
	}
	return cmp.Or(strings.Join(append(alone(mine, x, others, y), alone(others, y, mine, x)...), "; "),
		fmt.Sprintf("%s has %s from number %d on, %s %s", mine, short(x[i:]), i+1, others, short(y[i:])))
}

// alone returns a text about what only one of two lists has; none where there is nothing.
func alone(whose string, list []string, others string, other []string) []string {
	known := map[string]bool{}
	for _, s := range other {
		known[s] = true
	}

	only := slices.DeleteFunc(slices.Clone(list), func(s string) bool { return known[s] })
	if len(only) == 0 {
		return nil
	}

	return []string{fmt.Sprintf("%s has %s, which %s lacks", whose, short(only), others)}
}

// equal compares two fields of a RunSpec; no list equals an empty one.
func equal(x, y any) bool {
	if list, ok := x.([]string); ok {
		return slices.Equal(list, y.([]string))
	}
	return x == y
}

// mostShown is the largest number of bytes that a difference shows of a field.
const mostShown = 600

// short shows a field, and of a long list, such as one of a thousand classes, the beginning.
func short(x any) string {
	if list, ok := x.([]string); ok {
		x = list[:min(len(list), mostShown)] // each takes two bytes or more
	}

	s := fmt.Sprint(x)
	if _, number := x.(uint64); !number {
		s = fmt.Sprintf("%.400q", x)
	}

	if len(s) > mostShown {
		return s[:mostShown] + "..."
	}

	return s
}

// Largest sizes of what two sides must share, which are checked before anything is computed from it. A text tower reads
// 77 tokens, so that the text of a class is shorter than maxText; ImageNet-21k has 21,841 classes, whose texts have
// 1 MB.
const (
	maxClasses = 1 << 16
	maxText    = 1 << 10 // bytes of a class's text, or of another field
	maxTexts   = 4 << 20 // bytes of all texts
)

// CheckSizes refuses a spec of another side whose lists, or whose texts of all classes, are too large. It expands
// nothing.
func (t RunSpec) CheckSizes() error {
	if n := len(t.Classes); n < 1 || n > maxClasses {
		return fmt.Errorf("%d classes are too few or too many; the number must be 1 to %d", n, maxClasses)
	}

	if n := len(t.EvaluationSets); n > maxText {
		return fmt.Errorf("%d evaluation sets; at most %d are possible", n, maxText)
	}

	for _, s := range slices.Concat(t.EvaluationSets, []string{t.Template}) {
		if len(s) > maxText {
			return fmt.Errorf("the template or the name of an evaluation set has %d bytes; at most %d are possible",
				len(s), maxText)
		}
	}

	for _, class := range t.Classes {
		if n := t.textSize(len(class), 1); n > maxText {
			return fmt.Errorf("the text of class %.40q has %d bytes; at most %d are possible: use a shorter name or "+
				"template", class, n, maxText)
		}
	}

	if n := t.TextSize(); n > maxTexts {
		return fmt.Errorf("the texts of %d classes have %d bytes; at most %d are possible: use shorter names or a "+
			"shorter template", len(t.Classes), n, maxTexts)
	}

	return nil
}

// TextSize returns the bytes of the names of all classes and of the template with each, which it does not expand.
func (t RunSpec) TextSize() int {
	names := 0
	for _, class := range t.Classes {
		names += len(class)
	}
	return t.textSize(names, len(t.Classes))
}

func (t RunSpec) textSize(names, classes int) int {
	return classes*len(t.Template) + names*(1+strings.Count(t.Template, "{}"))
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

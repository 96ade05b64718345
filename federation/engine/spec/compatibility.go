package spec

import (
	"fmt"
	"maps"
	"slices"

	"promptfed/runtime/numerics"
)

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

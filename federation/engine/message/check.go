package message

import (
	"fmt"
	"math"

	"promptfed/federation/engine/metrics"
	"promptfed/federation/method"
	"promptfed/runtime/tensor"
)

// Check returns the reason why a reply cannot count: an upload with other names or shapes than the instruction's
// parameters, values that are not finite, or impossible counts. The layer that opens a Guard's tensors checks these.
func (o Instruction) Check(r Reply) error {
	switch o.Kind {
	case Train:
		if l := r.Stats.Loss; !(math.Abs(l) <= MaxLoss) {
			return fmt.Errorf("the loss %.4g is invalid: it must lie between -%g and %[2]g", l, float64(MaxLoss))
		}
		if o.Guarded == nil {
			return CheckUpload(o.Shared, r.Upload)
		}
		if len(r.Upload.Shared) > 0 || r.Upload.N != 1 {
			return fmt.Errorf("the upload has parameters %v and counts %d examples; it must be protected",
				r.Upload.Shared.Names(), r.Upload.N)
		}
		return CheckFinite("upload ", UploadTensors(r.Upload))
	case Compute:
		if r.Upload.N < 1 {
			return fmt.Errorf("the answer counts %d examples; it must count 1 or more", r.Upload.N)
		}
		if len(r.Upload.Shared) > 0 {
			return fmt.Errorf("the answer to a statistic has parameters %v; it must have none", r.Upload.Shared.Names())
		}
		return CheckFinite("upload ", UploadTensors(r.Upload))
	}
	return o.checkTest(r)
}

// CheckUpload refuses an upload that cannot be averaged with the shared parameters, or that would spoil the average.
func CheckUpload(shared tensor.Map, u method.Upload) error {
	if u.N < 1 {
		return fmt.Errorf("the upload counts %d examples; it must count 1 or more", u.N)
	}
	if err := tensor.SpecsOf(shared).Check(tensor.SpecsOf(u.Shared)); err != nil {
		return fmt.Errorf("the upload's parameters: %w", err)
	}
	return CheckFinite("upload ", UploadTensors(u))
}

// checkScores returns the reason why a client's scores cannot count.
func (o Instruction) checkScores(s Scores) error {
	if s.Examples < 1 || s.Examples > maxTested {
		return fmt.Errorf("the scores are of %d examples; 1 to %d are accepted", s.Examples, maxTested)
	}
	if s.Global == nil && s.Personal == nil {
		return fmt.Errorf("the scores have neither a global nor a personal part")
	}
	for _, of := range []metrics.Statistics{s.Global, s.Personal} {
		if of == nil {
			continue
		}
		if err := of.Check(s.Examples, o.Classes, o.Labels()); err != nil {
			return err
		}
	}
	return nil
}

// checkTest returns the reason why a reply to an instruction that tests cannot count.
func (o Instruction) checkTest(r Reply) error {
	if len(r.Upload.Shared)+len(r.Upload.Extra) > 0 {
		return fmt.Errorf("the reply to a test has unexpected tensors %v", UploadTensors(r.Upload).Names())
	}
	if o.Kind == Validate && r.Scores.Examples == 0 && r.Scores.Global == nil && r.Scores.Personal == nil {
		return nil // it has no validation data
	}
	return o.checkScores(r.Scores)
}

// maxTested is how many examples a client may report as tested: sums over any number of clients have exact float64 and
// int values.
const maxTested = 1 << 32

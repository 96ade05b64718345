package message

import (
	"fmt"
	"math"

	"promptfed/federation/engine/metrics"
	"promptfed/federation/method"
	"promptfed/runtime/tensor"
)

// Check finds why a reply cannot count: an upload with other names or shapes than the instruction's parameters, values
// that are not finite, or impossible counts. What comes from a Guard is checked by the layer that opens it.
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

// CheckUpload refuses what cannot be averaged with the shared parameters, or would spoil the average.
func CheckUpload(shared tensor.Map, u method.Upload) error {
	if u.N < 1 {
		return fmt.Errorf("the upload counts %d examples; it must count 1 or more", u.N)
	}
	if err := tensor.SpecsOf(shared).Check(tensor.SpecsOf(u.Shared)); err != nil {
		return fmt.Errorf("the upload's parameters: %w", err)
	}
	return CheckFinite("upload ", UploadTensors(u))
}

// check finds why a client's scores cannot count.
func (s Scores) check() error {
	some := false
	if s.Examples > maxTested {
		return fmt.Errorf("the scores are of %d examples; at most %d are accepted", s.Examples, maxTested)
	}
	for _, h := range []*metrics.Classification{s.Global, s.Personal} {
		if h == nil {
			continue
		}
		if some = true; s.Examples < 1 || h.Correct < 0 || h.Correct > s.Examples || h.CorrectOwn < 0 ||
			h.CorrectOwn > s.Examples ||
			!(h.F1 >= 0 && h.F1 <= 1) {
			return fmt.Errorf("the scores %+v of %d examples are none", *h, s.Examples)
		}
		if len(h.Calibration) == 0 {
			continue
		}
		if err := h.Calibration.Check(s.Examples, h.Correct); err != nil {
			return err
		}
	}
	if !some {
		return fmt.Errorf("the scores have neither a global nor a personal part")
	}
	return nil
}

// ConfusionTensors are the confusion matrix of a reply.
func (s Scores) ConfusionTensors() tensor.Map {
	m := tensor.Map{}
	for name, h := range map[string]*metrics.Classification{GlobalCounts: s.Global, PersonalCounts: s.Personal} {
		if h != nil && h.Confusion != nil {
			m[name] = h.Confusion
		}
	}
	return m
}

// checkTest finds what no reply to an instruction that tests can be.
func (o Instruction) checkTest(r Reply) error {
	if len(r.Upload.Shared) > 0 || !o.Confusion && len(r.Upload.Extra) > 0 {
		return fmt.Errorf("the reply to a test has unexpected tensors %v", UploadTensors(r.Upload).Names())
	}
	if o.Kind == Validate && r.Scores.Examples == 0 && r.Scores.Global == nil && r.Scores.Personal == nil {
		return nil // it has no validation data
	}
	if err := r.Scores.check(); err != nil {
		return err
	}
	for _, name := range r.Upload.Extra.Names() {
		h := map[string]*metrics.Classification{GlobalCounts: r.Scores.Global, PersonalCounts: r.Scores.Personal}[name]
		if h == nil {
			return fmt.Errorf("the reply to a test has the unexpected tensor %.100q", name)
		}
		if err := metrics.CheckConfusion(r.Upload.Extra[name], r.Scores.Examples, h.Correct); err != nil {
			return err
		}
	}
	return nil
}

// Names of the tensors that hold the confusion matrix in a reply.
const (
	GlobalCounts   = "confusion/global"
	PersonalCounts = "confusion/personal"
)

// maxTested is how many examples a client may report as tested: sums over any number of clients have exact float64 and
// int values.
const maxTested = 1 << 32

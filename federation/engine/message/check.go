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
func (o Instruction) Check(reply Reply) error {
	if t := reply.Stats.Terms; t != nil && len(t.Terms) > maxTerms {
		return fmt.Errorf("%d loss terms are measured; at most %d are accepted", len(t.Terms), maxTerms)
	}

	if err := reply.Stats.Terms.Within(maxTerm); err != nil {
		return err
	}

	switch o.Kind {
	case Train:
		if l := reply.Stats.Loss; !(math.Abs(l) <= MaxLoss) {
			return fmt.Errorf("the loss %.4g is invalid: it must lie between -%g and %[2]g", l, float64(MaxLoss))
		}
		if o.Guarded == nil {
			return CheckUpload(o.Shared, reply.Upload)
		}
		if len(reply.Upload.Shared) > 0 || reply.Upload.N != 1 {
			return fmt.Errorf("the upload has parameters %v and counts %d examples; it must be protected",
				reply.Upload.Shared.Names(), reply.Upload.N)
		}
		return CheckFinite("upload ", UploadTensors(reply.Upload))
	case Compute:
		if reply.Upload.N < 1 {
			return fmt.Errorf("the answer counts %d examples; it must count 1 or more", reply.Upload.N)
		}
		if len(reply.Upload.Shared) > 0 {
			return fmt.Errorf("the answer to a statistic has parameters %v; it must have none",
				reply.Upload.Shared.Names())
		}
		return CheckFinite("upload ", UploadTensors(reply.Upload))
	}

	if len(reply.Upload.Shared)+len(reply.Upload.Extra) > 0 {
		return fmt.Errorf("the reply to a test has unexpected tensors %v", UploadTensors(reply.Upload).Names())
	}

	if o.Kind == Validate && reply.Scores.Examples == 0 && reply.Scores.Global == nil && reply.Scores.Personal == nil {
		return nil // it has no validation data
	}

	return o.checkScores(reply.Scores)
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
func (o Instruction) checkScores(scores Scores) error {
	if scores.Examples < 1 || scores.Examples > maxTested {
		return fmt.Errorf("the scores are of %d examples; 1 to %d are accepted", scores.Examples, maxTested)
	}

	if scores.Global == nil && scores.Personal == nil {
		return fmt.Errorf("the scores have neither a global nor a personal part")
	}

	for _, statistics := range []metrics.Statistics{scores.Global, scores.Personal} {
		if statistics == nil {
			continue
		}
		if err := statistics.Check(scores.Examples, o.Classes, o.Labels()); err != nil {
			return err
		}
	}

	return nil
}

// maxTested is how many examples a client may report as tested: sums over any number of clients have exact float64 and
// int values.
const maxTested = 1 << 32

// DivergenceHint is the advice of messages about diverged training.
const DivergenceHint = "lower train.lr or set train.clip_norm"

// CheckFinite refuses tensors that hold NaN or an infinity. Its error puts the prefix before the name of the tensor.
func CheckFinite(what string, m tensor.Map) error {
	for _, name := range m.Names() {
		if i := m[name].NonFinite(); i >= 0 {
			return fmt.Errorf("%s%s holds %v at element %d; %s", what, name, m[name].Data[i], i, DivergenceHint)
		}
	}
	return nil
}

// UpdateNorm returns the Euclidean norm of the difference between an upload and the shared parameters that were sent.
func UpdateNorm(sent, uploaded tensor.Map) float64 {
	return uploaded.Clone().Axpy(-1, sent).Norm()
}

// MaxNormRatio is the largest ratio of the norm of an upload's update to the usual norm.
const MaxNormRatio = 50

// MaxUpdateNorm returns the largest norm of an update that is accepted whatever others upload: MaxNormRatio times the
// norm of the parameters, or that of ones in their place where it is larger, since low-rank changes and adapters start
// at 0. Without this limit two clients could not be told apart, and two of three would determine the usual norm.
func MaxUpdateNorm(shared tensor.Map) float64 {
	return MaxNormRatio * math.Max(shared.Norm(), math.Sqrt(float64(shared.Count())))
}

// MaxLoss is the largest absolute loss that a client on another machine may report. Cross entropy of CLIP's
// scores is at most twice their scale, 200; the rest is room for other terms.
const MaxLoss = 1e6

// LimitedClients lists the clients on other machines whose reports were refused or capped in a round, or that did not
// answer. All lists are sorted by client.
type LimitedClients struct {
	Refused []Refusal      `json:"refused,omitempty"` // replies of any kind that are ignored
	Cut     []CappedUpload `json:"cut,omitempty"`     // uploads whose weight was capped
	// Unawaited lists the clients that rounds no longer wait for, from this one until they answer again.
	Unawaited []int `json:"unawaited,omitempty"`
}

// Refusal is a client whose reply a round ignores, with the reason in words.
type Refusal struct {
	Client int    `json:"client"`
	Reason string `json:"reason"`
}

// CappedUpload has the number of examples that a client's upload claims and the number that weighted it.
type CappedUpload struct {
	Client  int `json:"client"`
	Claimed int `json:"claimed"`
	Counted int `json:"counted"`
}

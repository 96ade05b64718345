package record

import (
	"testing"

	"promptfed/federation/engine/message"
)

// A round's terms are means over clients, and relative to the mean of cross entropy: 2 and 4 have the mean 3, and 6 and
// 0 over it are 1. If cross entropy has no gradient there is no ratio.
func TestTermsOfARound(t *testing.T) {
	client := func(fit, pull float64) message.Reply {
		return message.Reply{Stats: message.Stats{Terms: &message.LossTerms{CrossEntropy: message.Norms{All: fit,
			On: map[string]float64{"a": fit}},
			Terms: []message.TermStats{
				{Name: "cross entropy", Value: fit, Norms: message.Norms{All: fit, On: map[string]float64{"a": fit}}},
				{Name: "pull", Value: 2 * pull,
					Norms: message.Norms{All: pull, On: map[string]float64{"a": pull, "b": 1, "c": 0}}}}}}}
	}
	if got := MeanTerms([]message.Reply{{}, {}}); got != nil {
		t.Errorf("%+v of clients that measured nothing", got)
	}
	got := MeanTerms([]message.Reply{client(2, 6), {}, client(4, 0)})
	if len(got) != 2 || got[0].Name != "cross entropy" || *got[0].Value != 3 || *got[0].Relative != 1 {
		t.Fatalf("%+v", got)
	}
	pull := got[1]
	if *pull.Value != 6 || pull.Norm != 3 || *pull.Relative != 1 || *pull.Params["a"].Relative != 1 ||
		pull.Params["b"].Relative != nil || pull.Params["b"].Norm != 1 || pull.Params["c"].Relative != nil {
		t.Errorf("%+v", pull)
	}
	with := MeanTerms([]message.Reply{{Stats: message.Stats{Terms: &message.LossTerms{
		CrossEntropy: message.Norms{All: 0.1, On: map[string]float64{"ctx": 0.1}},
		Terms: []message.TermStats{{Name: "a"}, {Name: "b"}, {Name: message.Correction, Norms: message.Norms{All: 7,
			On: map[string]float64{"ctx": 7}}}}}}}})
	if with[2].Name != message.Correction || with[2].Value != nil || *with[2].Relative != 7/0.1 {
		t.Errorf("%+v", with[2])
	}
}

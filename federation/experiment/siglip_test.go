package experiment

import (
	"math"
	"path/filepath"
	"strings"
	"testing"

	"promptfed/models/bundle/converted"
	"promptfed/runtime/goldentest"
	"promptfed/runtime/ort/orttest"
)

// A SigLIP, without causal mask and start token, is tested zero-shot and learns prompts, with either loss.
func TestSigLIP(t *testing.T) {
	orttest.RequireLibrary(t)
	dir := filepath.Join(t.TempDir(), "siglip")
	if _, err := converted.Convert("../../models/bundle/converted/testdata/siglip", dir,
		converted.Options{}); err != nil {
		t.Fatal(err)
	}
	prints := map[string]bool{} // a client with another loss than the server's is refused
	run := func(method, loss string) (first, last float64) {
		c := smallConfig(method)
		c.Backbones, c.Train.Loss, c.Train.Rounds, c.Data.Template = []string{dir}, loss, 3, "a {}"
		c.Options = map[string]any{"tokens": 3}
		b := open(t, c)
		prints[b.Experiment.Fingerprint()+b.Experiment.RunSpec().String()] = true
		r := finish(t, b)
		return *r.Records[1].Loss, *r.Records[len(r.Records)-1].Loss
	}
	for _, method := range []string{"coop", "promptfl"} {
		for _, loss := range []string{softmaxLoss, sigmoidLoss} {
			first, last := run(method, loss)
			if !(last < first) || math.IsNaN(first) {
				t.Errorf("%s with a %s loss: %g, then %g", method, loss, first, last)
			}
			if loss == sigmoidLoss && !(first > 0) {
				t.Errorf("%s: sigmoid loss %g", method, first)
			}
		}
	}
	if len(prints) != 4 {
		t.Errorf("%d different experiments, want 4", len(prints))
	}
	c := smallConfig("zeroshot")
	c.Backbones, c.Data.Template = []string{dir}, "a {}"
	finish(t, open(t, c))
}

// An exported SigLIP whose files have no scale is refused under a sigmoid loss, and learns with a configured scale.
// What is assumed of its files is a note of the run.
func TestSigLIPWithoutScale(t *testing.T) {
	orttest.RequireLibrary(t)
	const dir = "../../models/bundle/exported/testdata/siglip"
	c := smallConfig("coop")
	c.Backbones, c.Train.Loss, c.Data.Template = []string{dir}, sigmoidLoss, "a {}"
	c.Options = map[string]any{"tokens": 3}
	_, err := Open(t.Context(), c, nil)
	goldentest.WantErrorOf(t, "no scale", err, "lack the logit scale and bias that train.loss: sigmoid needs",
		"logit_scale: NUMBER, logit_bias: NUMBER")
	c.Backbones = []string{"folder=" + dir + ",logit_scale=110,logit_bias=-12.9"}
	b := open(t, c)
	task := b.Experiment.Clients[0].Backbone.Task() // of a text tower that is not CLIP's
	if r := finish(t, b); !(*r.Records[1].Loss > 0) || task.TextLayers != 0 || task.TextUnits != 0 {
		t.Errorf("loss %g, task %+v", *r.Records[1].Loss, task)
	}
	c.Backbones, c.Train.Loss = []string{dir}, softmaxLoss
	goldentest.Contains(t, strings.Join(open(t, c).Task.Info.Notes, "\n"), "siglip: logit_scale is not given: 100")
}

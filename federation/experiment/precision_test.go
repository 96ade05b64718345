package experiment

import (
	"testing"

	"promptfed/federation/data"
)

// data.precision determines the features of training, whatever the cache holds, and is part of the experiment: no run
// resumes with features of another precision.
func TestPrecision(t *testing.T) {
	c := smallConfig("promptfl")
	c.Runtime.Cache = t.TempDir()
	half := open(t, c)
	defer half.Close()
	c.Data.Precision = data.Float
	float := open(t, c)
	defer float.Close()
	if half.Experiment.Fingerprint() == float.Experiment.Fingerprint() ||
		half.Experiment.RunSpec().Mismatch(float.Experiment.RunSpec()) == nil {
		t.Error("the fingerprint or the terms do not tell them apart")
	}
	a, b := finish(t, half), finish(t, float)
	if *a.Records[0].Loss == *b.Records[0].Loss {
		t.Error("the same loss from rounded features and from those computed")
	}
	c.Data.Precision = "double"
	refuses(t, c, "data.precision", "half", "float")
}

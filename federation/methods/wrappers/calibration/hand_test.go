package calibration_test

import (
	"testing"

	"promptfed/federation/methods/wrappers/calibration"
	"promptfed/federation/methodtest"
)

type options = methodtest.Options

const lr = methodtest.HandLR

var second0 = methodtest.Second0

var hands = []methodtest.HandExample{
	// Each class is on one client and all its rows are equal, so no class has an extent: GGTPC measures that and does
	// not change PromptFL. The two equal rows of class 1 are [0,0,0] as a packed covariance.
	{Method: "promptfl", With: []string{"ggtpc"}, Options: options{"tokens": 1, "init_std": 0, "min_count": 1}, LR: lr,
		Want: map[string]float64{
			"r0/statistic/ggtpc/c0/n#0": 1, "r0/statistic/ggtpc/c0/n#1": 0, "r0/statistic/ggtpc/c0/mean#1": 0.8,
			"r0/statistic/ggtpc/c1/n#1":    2,
			"r0/statistic/ggtpc/c1/mean#2": 0.8, "r0/statistic/ggtpc/c1/mean#0": 0, "r0/statistic/ggtpc/c1/cov#5": 0,
			"r0/statistic/ggtpc/aggregate/sizes#1": 0, "r0/statistic/ggtpc/aggregate/axes#3": 0,
			"r0/c0/down/sizes#0":    0,
			"r1/c1/kept/sizes#1":    0,
			"r0/c1/s0/draw/clean#3": 0.6, "r0/c1/s0/image#3": 0.6, "r0/c0/upload/ctx": 0.75, "r0/merged/ctx": -0.125,
			"r1/c0/upload/ctx": second0}},
}

func TestTwoRoundsByHand(t *testing.T) { methodtest.CheckHandExamples(t, calibration.Methods, hands) }

func TestPyTorch(t *testing.T) { methodtest.PyTorch(t, calibration.Methods) }

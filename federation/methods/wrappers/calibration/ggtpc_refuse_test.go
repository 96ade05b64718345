package calibration_test

import (
	"testing"

	"promptfed/federation/methods"
	"promptfed/runtime/goldentest"
)

func TestNothingToCalibrate(t *testing.T) {
	_, err := methods.Build("zeroshot", []string{"ggtpc"}, nil)
	goldentest.WantError(t, err, "learns nothing")
}

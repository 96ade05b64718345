package calibration_test

import (
	"strings"
	"testing"

	"promptfed/federation/methods"
)

func TestNothingToCalibrate(t *testing.T) {
	if _, err := methods.Build("zeroshot", []string{"ggtpc"}, nil); err == nil || !strings.Contains(err.Error(),
		"learns nothing") {
		t.Error(err)
	}
}

package command

import "testing"

func TestBound(t *testing.T) {
	for text, want := range map[string]float64{"auto": 0, "off": -1, "0": -1, "12.5": 12.5, "1e15": 1e15} {
		if got, err := bound("max-norm", text); got != want || err != nil {
			t.Errorf("%s: %v, %v", text, got, err)
		}
	}
	for _, text := range []string{"", "-1", "NaN", "inf", "1e30", "many"} {
		if got, err := bound("max-norm", text); err == nil {
			t.Errorf("%q: %v", text, got)
		}
	}
}

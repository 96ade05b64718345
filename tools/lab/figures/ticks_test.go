package figures

import "testing"

// Ticks of rounds are whole numbers. Of a short range there are fewer, and none between two rounds.
func TestWholeTicks(t *testing.T) {
	for _, c := range []struct {
		low, high float64
		want      string
	}{{0.6, 15.4, "5 10 15"}, {0.9, 3.1, "1 2 3"}, {0.5, 10.5, "2 4 6 8 10"}, {-3, 103, "0 20 40 60 80 100"},
		{1.2, 1.8, ""}} {
		var got string
		for _, tick := range (evenTicks{n: 6, whole: true}).Ticks(c.low, c.high) {
			if got != "" {
				got += " "
			}
			got += tick.Label
		}
		if got != c.want {
			t.Errorf("%g to %g: %s, want %s", c.low, c.high, got, c.want)
		}
	}
}

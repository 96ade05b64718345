package projection

import "testing"

// The counts are worked out by hand from the formulas and, for Code, read from the public code's own arithmetic
// (Python: 16 - int(16 * (1 - .8)) = 13).
func TestKeptColumns(t *testing.T) {
	kept := func(kind string, t, d int, rho float64) int {
		lo, hi := columns[kind](rho, t, d, t)
		return hi - lo
	}
	for _, c := range []struct {
		name      string
		got, want int
	}{
		{"eq9 512 .8", kept(Eq9, 16, 512, .8), 102},          // floor(102.4)
		{"eq9 512 .6", kept(Eq9, 16, 512, .6), 204},          // SDFed Eq. 9: floor(204.8)
		{"def1 512 .6", kept(Def1, 16, 512, .6), 205},        // SDFed Definition 1: 512 - floor(307.2)
		{"def1 512 .5", kept(Def1, 16, 512, .5), 256},        // no remainder, no off-by-one
		{"eq9 640 .9", kept(Eq9, 16, 640, .9), 64},           // float64 gives 63.99999999999999
		{"eq9 512 1", kept(Eq9, 16, 512, 1), 0},              // nothing left
		{"eq9 512 0", kept(Eq9, 16, 512, 0), 512},            // everything
		{"alg1 512 .8", kept(Alg1, 16, 512, .8), 410},        // 512 - floor(102.4)
		{"alg1 512 1", kept(Alg1, 16, 512, 1), 512},          //
		{"code 16 .3", kept(Code, 16, 512, .3), 5},           // 16 - int(11.2)
		{"code 16 .5", kept(Code, 16, 512, .5), 8},           // 16 - int(8.0)
		{"code 16 .8", kept(Code, 16, 512, .8), 13},          // 16 - int(3.2)
		{"code 16 1", kept(Code, 16, 512, 1), 16},            //
		{"code 8 .6", kept(Code, 8, 512, .6), 5},             // 8 - int(3.2)
		{"code 8 .8", kept(Code, 8, 512, .8), 7},             // 8 - int(1.6)
		{"code 4 .8", kept(Code, 4, 512, .8), 4},             // 4 - int(0.8)
		{"code 10 .9", kept(Code, 10, 512, .9), 10},          // 10 - int(0.9999999999999998)
		{"code 16 wide 4", kept(Code, 16, 4, .5), 0},         // V has 4 columns, the slice starts at 8
		{"null 16", 512 - kept(ExactNull, 16, 512, .8), 16},  // min(16, 410)
		{"null few", 512 - kept(ExactNull, 16, 512, .01), 6}, // min(16, 512 - floor(506.88))
	} {
		if c.got != c.want {
			t.Errorf("%s: %d columns, want %d", c.name, c.got, c.want)
		}
	}
}

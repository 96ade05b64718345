package attack

import (
	"context"
	"math"
	"os"
	"strings"
	"testing"
	"time"

	"promptfed/federation/engine"
	"promptfed/runtime/safetensors"
	"promptfed/runtime/tensor"
)

func contextFor(d time.Duration) (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.Background(), d)
}

func empty(t *testing.T, dir string) {
	t.Helper()
	if list, err := os.ReadDir(dir); err != nil || len(list) > 0 {
		t.Errorf("%s: %v, %v", dir, list, err)
	}
}

// A client that uploads what none should fails alone: of three clients the two others go on, with a quorum of 0.8, and
// their rounds have the average of two.
func TestLies(t *testing.T) {
	for say, lie := range map[string]func(r *engine.Reply){
		"NaN":                     func(r *engine.Reply) { r.Upload.Shared["ctx"].Data[0] = float32(math.NaN()) },
		"joined with 10":          func(r *engine.Reply) { r.Upload.N = math.MaxInt },
		"moved the parameters by": func(r *engine.Reply) { r.Upload.Shared["ctx"].Data[0] = 1e30 },
		"another experiment":      func(r *engine.Reply) { r.Upload.Shared["more"] = tensor.Scalar(1) },
		"at most 1000000 are taken": func(r *engine.Reply) {
			r.Upload.Shared["more"] = tensor.New(1 << 20)
		},
	} {
		t.Run(say, func(t *testing.T) {
			t.Parallel()
			s := serve(t, 3, "--max-norm", "1000", "--largest", "1000000")
			s.joins(0, 1, 2)
			s.background(part{client: 0, lie: lie})
			counted(t, s.ends(), 1, 2)
			if !strings.Contains(s.log.String(), say) {
				t.Errorf("the server does not say %q", say)
			}
			m, _, err := safetensors.ReadFile(s.at("out", engine.PromptsFile))
			if err != nil {
				t.Fatal(err)
			}
			for name, x := range m.Under("shared") {
				for i, v := range x.Data {
					if !(v > 2 && v < 4) { // three rounds of one each, from values near 0
						t.Fatalf("%s: element %d is %v", name, i, v)
					}
				}
			}
			empty(t, s.at("out", "hub", "pieces"))
		})
	}
}

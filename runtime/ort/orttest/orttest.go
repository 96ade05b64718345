package orttest

import (
	"cmp"
	"math"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"promptfed/runtime/busytest"
	"promptfed/runtime/filestamp"
	"promptfed/runtime/filetest"
	"promptfed/runtime/goldentest"
	"promptfed/runtime/ort"
	"promptfed/runtime/safetensors"
	"promptfed/runtime/tensor"
)

// init lets tools/test-cuda.sh choose the provider of tests that name none.
func init() {
	ort.DefaultProvider = cmp.Or(os.Getenv("PROMPTFED_RUNTIME_PROVIDER"), ort.DefaultProvider)
}

// RequireLibrary skips a test if there is no ONNX Runtime.
func RequireLibrary(t *testing.T) {
	t.Helper()
	if _, err := ort.FindLibrary(); err != nil {
		t.Skip(err)
	}
}

// OnCPU reports whether sessions of tests run on the CPU, where the same graphs give the same bytes.
func OnCPU() bool { return (ort.Options{}).WithProvider().Provider == ort.CPU }

// Tolerance returns the tolerance of a comparison: cpu on the CPU, and 20 times that on a GPU, which sums in another
// order.
func Tolerance(cpu float64) float64 {
	if OnCPU() {
		return cpu
	}
	return 20 * cpu
}

// RequireCPU skips a test of a property that only the CPU has.
func RequireCPU(t testing.TB) {
	t.Helper()
	if p := (ort.Options{}).WithProvider().Provider; p != ort.CPU {
		t.Skipf("provider %s", p)
	}
}

// Golden reads the tensors of a .safetensors file.
func Golden(t testing.TB, path string) tensor.Map {
	t.Helper()
	m, _, err := safetensors.ReadFile(path)
	goldentest.NoError(t, err)
	return m
}

// CheckClose checks that integers are equal, and differences are at most 1e-4 of the largest value (see Tolerance).
func CheckClose(t testing.TB, what string, got, want *tensor.Tensor) {
	t.Helper()
	if got == nil || !got.SameShape(want) {
		t.Fatalf("%s: %v, want %v", what, got, want)
	}

	if !slices.Equal(got.Ints, want.Ints) {
		t.Errorf("%s: %v, want %v", what, got.Ints, want.Ints)
	}

	worst := 0.0
	for i := range want.Data {
		worst = max(worst, math.Abs(float64(got.Data[i]-want.Data[i])))
	}

	if !(worst <= Tolerance(1e-4)*want.MaxAbs()) {
		t.Errorf("%s: differs by %g where the largest value is %g", what, worst, want.MaxAbs())
	}
}

// Settle waits until a change of a file gets another stamp, by the clock of the file system.
func Settle(t testing.TB, path string) {
	t.Helper()
	st, err := os.Stat(path)
	goldentest.NoError(t, err)

	probe := filepath.Join(t.TempDir(), "now")
	busytest.Until(t, "a later time of the file system", func() bool {
		filetest.Write(t, probe, "")
		now, err := os.Stat(probe)
		goldentest.NoError(t, err)
		return filestamp.Settled(st, now.ModTime())
	})
}

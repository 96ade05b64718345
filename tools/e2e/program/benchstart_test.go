package program

import (
	"encoding/json"
	"math"
	"path/filepath"
	"testing"

	"promptfed/runtime/goldentest"
)

// bench --start measures starts of the program itself. The parts add up to the time to the first step.
func TestBenchStart(t *testing.T) {
	t.Parallel()
	var r struct {
		Tables []struct {
			Columns []string
			Rows    [][]any
		}
	}
	bundle := filepath.Join(t.TempDir(), "bundle")
	mustRun(t, "convert", absolute(t, "../../..", "models/bundle/converted/testdata/huggingface"), "--out", bundle)
	text := mustRun(t, "bench", "--start", "--quick", "--backbone", bundle, "--json")
	goldentest.NoError(t, json.Unmarshal([]byte(text), &r))
	if len(r.Tables) != 1 || len(r.Tables[0].Rows) != 4 {
		t.Fatalf("%s: want a row for the first and the later starts of two backbones", text)
	}
	for i, row := range r.Tables[0].Rows {
		sum := 0.0
		for k, cell := range row[3:] {
			v, ok := cell.(float64)
			if !ok || v < 0 || v == 0 && r.Tables[0].Columns[3+k] != "image features" {
				t.Errorf("row %d: %s is %v", i, r.Tables[0].Columns[3+k], cell)
			}
			sum += v
		}
		if total := row[2].(float64); math.Abs(total-sum) > 1e-6 {
			t.Errorf("row %d: parts of %g s add up to %g", i, total, sum)
		}
		if what := row[1]; what != []string{"first", "later"}[i%2] {
			t.Errorf("row %d is a %v start", i, what)
		}
	}
}

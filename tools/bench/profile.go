package bench

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// multiplies are the operators that multiply matrices or convolve.
var multiplies = map[string]bool{"MatMul": true, "FusedMatMul": true, "Gemm": true, "FusedGemm": true, "Conv": true,
	"FusedConv": true, "ConvTranspose": true, "Attention": true, "MultiHeadAttention": true, "Einsum": true}

// readProfiles reads what ONNX Runtime's profiles whose names begin so say that operators took, in seconds, and how often
// the graph that runs most often ran. They are removed.
func readProfiles(prefix string) (spent map[string]float64, runs int, err error) {
	files, err := filepath.Glob(prefix + "_*.json")
	if err != nil {
		return nil, 0, err
	}
	spent = map[string]float64{}
	for _, file := range files {
		raw, err := os.ReadFile(file)
		if err != nil {
			return nil, 0, err
		}
		var events []struct {
			Cat, Name string
			Dur       float64 // microseconds
			Args      struct {
				Op string `json:"op_name"`
			}
		}
		if err := json.Unmarshal(raw, &events); err != nil {
			return nil, 0, fmt.Errorf("profile %s: %w", filepath.Base(file), err)
		}
		n := 0
		for _, e := range events {
			switch {
			case e.Cat == "Session" && e.Name == "model_run":
				n++
			case e.Cat == "Node" && strings.HasSuffix(e.Name, "_kernel_time"):
				spent[e.Args.Op] += e.Dur / 1e6
			}
		}
		runs = max(runs, n)
		if err := os.Remove(file); err != nil {
			return nil, 0, err
		}
	}
	return spent, runs, nil
}

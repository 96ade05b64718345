package bench

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"strings"
)

// multiplies are the operators that multiply matrices or convolve. They include promptfed's own attention.
var multiplies = map[string]bool{"MatMul": true, "FusedMatMul": true, "Gemm": true, "FusedGemm": true, "Conv": true,
	"Product": true, "FusedConv": true, "ConvTranspose": true, "Attention": true, "MultiHeadAttention": true,
	"Einsum": true, "AttentionGrad": true, "SequenceAttention": true, "SequenceAttentionGrad": true}

// inProducts returns the seconds of the operators in multiplies, and of all operators.
func inProducts(spent map[string]float64) (products, all float64) {
	for op, seconds := range spent {
		if all += seconds; multiplies[op] {
			products += seconds
		}
	}
	return products, all
}

// readProfiles reads ONNX Runtime's profiles whose names begin with prefix. It returns the seconds of each operator
// over all runs of each graph, without the first ones of the given number of equal parts, and without graphs of fewer
// runs than parts, which belong to the first part: those of values that are computed once. between is the seconds of
// runs on the CPU between operators, which the profiler takes: without it a run of FLoRA's 988 operators takes less by
// more than that. left lists the operators that ran on the CPU in graphs for another provider. It removes the files.
func readProfiles(prefix string, parts, without int) (spent map[string]float64, between float64, left map[string]bool,
	err error) {
	files, err := filepath.Glob(prefix + "_*.json")
	if err != nil {
		return nil, 0, nil, err
	}

	spent, left = map[string]float64{}, map[string]bool{}
	for _, file := range files {
		raw, err := os.ReadFile(file)
		if err != nil {
			return nil, 0, nil, err
		}
		gaps, err := addProfile(spent, left, raw, parts, without)
		if err != nil {
			return nil, 0, nil, fmt.Errorf("profile %s: %w", filepath.Base(file), err)
		}
		between += gaps
		if err := os.Remove(file); err != nil {
			return nil, 0, nil, err
		}
	}

	return spent, between, left, nil
}

// addProfile adds the operators of one file, and returns the seconds between them. In a profile the operators of a run
// come before the run; the time of a Loop is that of the operators inside.
func addProfile(spent map[string]float64, left map[string]bool, raw []byte, parts, without int) (between float64,
	err error) {
	type event struct {
		Cat, Name string
		Dur       float64 // microseconds
		Args      struct {
			Op       string `json:"op_name"`
			Provider string
		}
	}
	var events []event
	if err := json.Unmarshal(raw, &events); err != nil {
		return 0, err
	}

	run := func(e event) bool { return e.Cat == "Session" && e.Name == "model_run" }
	runs, done, on, host := 0, 0, map[string]bool{}, map[string]bool{}
	for _, e := range events {
		if run(e) {
			runs++
		}
	}

	measured := func() bool { return runs >= parts && done*parts >= runs*without }
	inside := 0.0 // operators of the current run
	for _, event := range events {
		if run(event) {
			if measured() {
				between += max(0, event.Dur/1e6-inside)
			}
			done++
			inside = 0
		}

		if event.Cat == "Node" && strings.HasSuffix(event.Name, "_kernel_time") && measured() {
			spent[event.Args.Op] += event.Dur / 1e6
			if event.Args.Op != "Loop" {
				inside += event.Dur / 1e6
			}
			on[event.Args.Provider] = true
			if event.Args.Provider == "CPUExecutionProvider" {
				host[event.Args.Op] = true
			}
		}
	}

	if len(on) > 1 {
		maps.Copy(left, host)
	}

	if len(on) > 1 || !on["CPUExecutionProvider"] {
		between = 0 // a run on a device ends with a wait
	}

	return between, nil
}

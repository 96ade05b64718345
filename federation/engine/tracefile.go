package engine

import (
	"encoding/json"
	"io"
	"path/filepath"
	"slices"

	"promptfed/runtime/atomicfile"
	"promptfed/runtime/safetensors"
)

// Files of a trace folder.
const (
	TraceJSON    = "trace.json"
	TraceTensors = "trace.safetensors"
)

// TraceInfo is trace.json: what an outside program needs besides tensors.
type TraceInfo struct {
	Config     map[string]any `json:"config"` // resolved, by dotted key
	Classes    []string       `json:"classes"`
	Bundles    []TraceBundle  `json:"bundles"`
	Tokens     [][]int        `json:"tokens"`      // of each class, its name, a full stop and the end of text, by the first bundle's tokenizer
	HandTokens [][]int        `json:"hand_tokens"` // whole sequences of the hand-written prompts, likewise
	Layout     string         `json:"layout"`
	Clients    []TraceClient  `json:"clients"`
	Steps      []StepRecord   `json:"steps"`
}

// TraceBundle is a backbone of the run and how its tokenizer reads the classes.
type TraceBundle struct {
	Name       string  `json:"name"`
	Digest     string  `json:"digest"`
	Folder     string  `json:"folder"`
	LogitScale float64 `json:"logit_scale"` // what cosines are multiplied with
	SOS        int     `json:"sos"`
	EOT        int     `json:"eot"`
	Context    int     `json:"context"`
	Tokens     [][]int `json:"tokens"`
	HandTokens [][]int `json:"hand_tokens"`
}

// TraceClient is one client of the run.
type TraceClient struct {
	Bundle string `json:"bundle"`
	Domain string `json:"domain"`
	Train  int    `json:"examples"` // training examples, its weight in averages
	Test   int    `json:"test_examples"`
}

// Write stores what was recorded in a folder that exists.
func (r *Recorder) Write(dir string, info TraceInfo) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if err := safetensors.WriteFile(filepath.Join(dir, TraceTensors), r.Tensors, nil); err != nil {
		return err
	}
	info.Steps = slices.Clone(r.Steps)
	slices.SortFunc(info.Steps, func(a, b StepRecord) int {
		if a.Round != b.Round {
			return a.Round - b.Round
		}
		if a.Client != b.Client {
			return a.Client - b.Client
		}
		return a.Step - b.Step
	})
	text, err := json.MarshalIndent(info, "", " ")
	if err != nil {
		return err
	}
	return atomicfile.Write(filepath.Join(dir, TraceJSON), func(w io.Writer) error {
		_, err := w.Write(append(text, '\n'))
		return err
	})
}

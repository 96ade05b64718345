package trace

import (
	"cmp"
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"promptfed/federation/engine/spec"
	"promptfed/runtime/atomicfile"
	"promptfed/runtime/safetensors"
)

// Files of a trace folder.
const (
	InfoFile    = "trace.json"
	TensorsFile = "trace.safetensors"
)

// Info is trace.json: what an outside program needs beside the tensors. Steps are filled in by WriteTrace.
type Info struct {
	Config     any      `json:"config"`  // resolved
	Classes    []string `json:"classes"` // names
	Tokens     [][]int  `json:"tokens"`  // ids of each class behind a prompt: name, full stop, EOT
	HandTokens [][]int  `json:"hand_tokens,omitempty"`
	NameTokens [][]int  `json:"name_tokens,omitempty"`
	// TemplateTokens are whole sequences by template, of those that the method reads beside data.template and bare
	// names.
	TemplateTokens map[string][][]int `json:"template_tokens,omitempty"`
	Layout         string             `json:"layout,omitempty"`  // how ids become sequences, in words
	Bundles        []Bundle           `json:"bundles,omitempty"` // the token ids above are those of the first
	Clients        []ClientInfo       `json:"clients"`
	Steps          []StepRecord       `json:"steps"`
}

// Bundle is a backbone of the run and how its tokenizer reads the classes.
type Bundle struct {
	Name           string             `json:"name"`
	Digest         string             `json:"digest"`
	Folder         string             `json:"folder"`
	LogitScale     float64            `json:"logit_scale"` // what cosines are multiplied with
	SOS            int                `json:"sos"`
	EOT            int                `json:"eot"`
	Context        int                `json:"context"`
	Tokens         [][]int            `json:"tokens"`
	HandTokens     [][]int            `json:"hand_tokens"`
	NameTokens     [][]int            `json:"name_tokens"` // whole sequences of bare class names
	TemplateTokens map[string][][]int `json:"template_tokens,omitempty"`
}

// ClientInfo is what trace.json says of a client.
type ClientInfo struct {
	Bundle   string `json:"bundle"`
	Examples int    `json:"examples"` // to train on
	Test     int    `json:"test"`     // to test on
	Domain   string `json:"domain,omitempty"`
}

// ClientInfos describes the clients of an experiment.
func ClientInfos(e *spec.Experiment) []ClientInfo {
	out := make([]ClientInfo, len(e.Clients))
	for i, c := range e.Clients {
		out[i] = ClientInfo{Bundle: c.Backbone.Name(), Examples: c.Train.Len(), Test: c.Test.Len(), Domain: c.Domain}
	}
	return out
}

// Write writes what was recorded, with info beside it, into the folder dir, which it makes where it is missing.
func (r *Recorder) Write(dir string, info Info) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	info.Steps = slices.SortedFunc(slices.Values(r.Steps), func(a, b StepRecord) int {
		return cmp.Or(a.Round-b.Round, a.Client-b.Client, a.Step-b.Step)
	})
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return fmt.Errorf("trace: %w", err)
	}
	if err := safetensors.WriteFile(filepath.Join(dir, TensorsFile), r.Tensors, nil); err != nil {
		return fmt.Errorf("trace: %w", err)
	}
	return atomicfile.Write(filepath.Join(dir, InfoFile), atomicfile.JSON(info, " "))
}

package results

import (
	"encoding/json"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
)

// maxProvenance bounds what is read of ProvenanceFile, in bytes.
const maxProvenance = 4 << 20

// readExecution reads how a run was executed: by which commit of the program, ONNX Runtime, provider, processor and
// numbers of threads. A run that was resumed may have several of each.
func readExecution(dir string) (map[string]string, error) {
	text, err := readSmall(filepath.Join(dir, ProvenanceFile), maxProvenance)
	if text == nil || err != nil {
		return nil, err
	}
	var p struct {
		Calls []struct {
			Commit    string `json:"commit"`
			ONNX      string `json:"onnx_runtime"`
			Provider  string `json:"provider"`
			Processor string `json:"processor"`
			System    string `json:"system"`
			Threads   int    `json:"threads"`
		} `json:"calls"`
	}
	if err := json.Unmarshal(text, &p); err != nil {
		return nil, fmt.Errorf("%s: %w", ProvenanceFile, err)
	}
	lists := map[string][]string{}
	add := func(what, value string) {
		if value != "" && !slices.Contains(lists[what], value) {
			lists[what] = append(lists[what], value)
		}
	}
	for _, c := range p.Calls {
		add("commit", c.Commit)
		add("ONNX Runtime", c.ONNX)
		add("provider", c.Provider)
		add("processor", c.Processor)
		add("system", c.System)
		if c.Threads > 0 {
			add("threads", fmt.Sprint(c.Threads))
		}
	}
	out := map[string]string{}
	for what, list := range lists {
		out[what] = strings.Join(list, " and ")
	}
	return out, nil
}

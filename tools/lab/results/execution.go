package results

import (
	"encoding/json"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
)

// maxProvenance is the size limit of ProvenanceFile, in bytes.
const maxProvenance = 4 << 20

// readExecution reads the circumstances of a run: the program's commit, and the machine (numerics.Fingerprint). A
// resumed run may have several of each.
func readExecution(dir string) (map[string]string, error) {
	text, err := readSmall(filepath.Join(dir, ProvenanceFile), maxProvenance)
	if text == nil || err != nil {
		return nil, err
	}
	var p struct {
		Calls []struct {
			Commit   string         `json:"commit"`
			Numerics map[string]any `json:"numerics"`
		} `json:"calls"`
	}
	if err := json.Unmarshal(text, &p); err != nil {
		return nil, err
	}
	out := map[string]string{}
	add := func(what, value string) {
		switch list := strings.Split(out[what], " and "); {
		case value == "" || slices.Contains(list, value):
		case out[what] == "":
			out[what] = value
		default:
			out[what] += " and " + value
		}
	}
	for _, c := range p.Calls {
		add("commit", c.Commit)
		for what, value := range c.Numerics {
			add(what, fmt.Sprint(value))
		}
	}
	return out, nil
}

// ReproducedDefects returns a sentence for captions about known defects of published code that finished runs reproduced
// on purpose; empty for none.
func ReproducedDefects(groups []*Group) string {
	count, done := map[string]int{}, 0
	for _, g := range groups {
		for _, r := range g.Done() {
			done++
			for _, defect := range r.Summary.Reproduces {
				count[defect]++
			}
		}
	}
	var parts []string
	for _, defect := range sortedKeys(count) {
		parts = append(parts, fmt.Sprintf("%s (%d of %d runs)", oneLine(defect), count[defect], done))
	}
	if len(parts) == 0 {
		return ""
	}
	return "Known defects of published code, reproduced on purpose: " + strings.Join(parts, ", ") + "."
}

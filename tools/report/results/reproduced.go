package results

import (
	"fmt"
	"strings"
)

// Reproduced is a sentence for captions about known defects of published code that finished runs made again on purpose;
// empty for none.
func Reproduced(groups []*Group) string {
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

package report

import (
	"fmt"
	"strconv"
	"strings"

	"promptfed/federation/engine/record"
	"promptfed/tools/lab/results"
	"promptfed/tools/lab/tables"
)

// mostBelow is the largest number of groups in a note about zero-shot.
const mostBelow = 6

// remark adds a note of the report that is also a remark of a table.
func (v *view) remark(t *tables.Table, line string) {
	v.Notes, t.Remarks = append(v.Notes, line), append(t.Remarks, line+".")
}

// belowZeroShot notes the groups whose final accuracy, a mean over clients and runs, is below the accuracy of the
// hand-written prompts. Each run measures the hand-written prompts before training, on the same test images.
func (v *view) belowZeroShot(main *tables.Table) {
	m, err := results.ParseMetric(results.DefaultMetric(v.groups))
	if err != nil {
		return
	}

	var below []string
	tokens, lr := 0, 0.0 // the largest of the groups below
	for _, group := range v.groups {
		var got, hand results.Stat
		for _, r := range group.Done() {
			a, ok := m.Value(r)
			b, known := r.Summary.ZeroShotMean()
			if ok && known {
				got.Values, hand.Values = append(got.Values, a), append(hand.Values, b)
			}
		}

		if a, b := got.Mean(), hand.Mean(); record.Below(a, b, 0) {
			below = append(below, fmt.Sprintf("%s (%.2f < %.2f)", group.Name, 100*a, 100*b))
			if id := group.Identity(); id != nil {
				n, _ := strconv.Atoi(id.Values["options.tokens"])
				rate, _ := strconv.ParseFloat(id.Values["train.lr"], 64)
				tokens, lr = max(tokens, n), max(lr, rate)
			}
		}
	}

	if len(below) == 0 {
		return
	}

	names, verb := strings.Join(below, ", "), "end"
	switch {
	case len(below) == 1:
		verb = "ends"
	case len(below) > mostBelow:
		names = fmt.Sprintf("%s and %d more", strings.Join(below[:mostBelow], ", "), len(below)-mostBelow)
	}

	v.remark(main, fmt.Sprintf("%s %s below zero-shot on the same test images: %s", names, verb,
		record.Remedy(tokens, lr)))
}

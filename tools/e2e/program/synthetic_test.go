package program

import (
	"strings"
	"testing"

	"promptfed/runtime/goldentest"
)

// The small forms of base-to-new and leave-one-domain-out run, and their main tables have all quantities that
// docs/evaluation.md defines.
func TestDrawnEvaluations(t *testing.T) {
	if testing.Short() {
		t.Skip("trains")
	}
	for name, heads := range map[string][]string{
		"base-to-new":          {"last (%)", "own-classes (%)", "set:base (%)", "set:new (%)", "hm (%)", "hm3 (%)"},
		"leave-one-domain-out": {"cartoon", "mosaic", "neon", "sketch", "Average"},
	} {
		out := smoke(t, "../../../configs/synthetic/"+name+".yaml")
		goldentest.Contains(t, string(read(t, out, "tables.md")), "| method | "+strings.Join(heads, " | ")+" |\n")
	}
}

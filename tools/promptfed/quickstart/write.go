package quickstart

import (
	"fmt"
	"strings"

	"promptfed/federation/data/sets"
	"promptfed/federation/experiment"
)

// write returns the text of a configuration that compares methods. The default is the list usual.
func (p *Plan) write(kind, images string, data sets.Config, chosen choice, compared []contender) []byte {
	var text strings.Builder
	line := func(format string, a ...any) { fmt.Fprintf(&text, format+"\n", a...) }
	line("# A comparison of federated prompt learning on %s.", strings.Map(printable, images))
	line("#   promptfed run FILE              trains, and writes tables, figures and report.html below runs/")
	line("#   promptfed partition FILE        shows who gets which images")
	line("# docs/configuration.md explains every key; --set KEY=VALUE changes one for a single run.")
	line("name: %q", p.Name)
	line("seed: 1                            # --seeds 1-3 runs three, and shows mean and deviation")
	line("")
	line("data:")
	line("  set: %-28s # %s", kind, kinds[kind])
	line("  root: %q", images)
	if kind == "folder" {
		line("  layout: %-25s # auto, classes, domains, split or split-domains", data.Layout)
	}

	line("  corrupt: %-24s # skip leaves out images that cannot be read", data.Corrupt)
	line("  # class_names: {\"0\": zero}        # names that prompts use, where folders have other ones")
	line("  # shots: 16                      # training images per class and client; without this line, all")
	line("")
	line("# promptfed list backbones shows what there is, promptfed convert makes one from a checkpoint of CLIP.")
	line("backbones: [tiny-vit-b16]")
	line("")
	line("partition:")
	line("  kind: %-27s # %s", chosen.kind, abouts[chosen.kind])
	line("  clients: %d", chosen.clients)
	if strings.HasSuffix(chosen.kind, "dirichlet") {
		line("  beta: 0.5                        # smaller is more skewed")
	}

	line("")
	line("train: {rounds: 20, epochs: 1, batch: 32, lr: %g}", experiment.ToyLR)
	line("eval: {every: 1, last: 5, view: personal}")
	line("")
	if n := len(compared); n > 0 {
		line("method: %s", compared[n-1].method)
		line("")
	} else {
		compared = usual
	}

	line("# The methods to compare; promptfed list methods shows all, and with NAME its options.")
	line("sweep:")
	line("  axes:")
	line("    - name: method")
	line("      points:")
	for _, m := range compared {
		line("        - {label: %q, set: %s}", m.label, m.set)
	}

	return []byte(text.String())
}

// kinds describes the kinds of sets that Kind returns.
var kinds = map[string]string{"folder": "folders of images", "list": "a list of paths and labels",
	"parquet": "Parquet files with images and labels"}

// printable replaces characters that would end a comment.
func printable(r rune) rune {
	if r < ' ' || r == 0x7f || r == 0x85 || r == 0x2028 || r == 0x2029 {
		return '?'
	}
	return r
}

package exported

import (
	"cmp"
	"fmt"
	"os"
	"strings"

	"promptfed/models/bundle"
	"promptfed/runtime/convert"
	"promptfed/runtime/graph"
)

func (m *model) Report(report *bundle.Report) {
	textTower, i := m.text, m.image
	report.Found = append(report.Found, m.found...)
	found := func(what, format string, a ...any) {
		report.Found = append(report.Found, bundle.Finding{What: what, Value: fmt.Sprintf(format, a...)})
	}

	found("image tower", "%s: images of %d, features of size %d", i.name, i.size, i.embedDim)
	found("pixels", "%s", describe(i.input))
	found("image features", "%s", describe(i.output))
	if i.patches.OK() {
		found("patch features", "%s: %d of an image", describe(i.patches), i.count)
	}

	length := fmt.Sprintf("texts run at %d tokens", textTower.context)
	if textTower.short {
		length = "texts are padded only to the longest one"
	}

	found("text tower", "%s: width %d, context %d, features of size %d; %s", textTower.name, textTower.table.width,
		textTower.context, textTower.embedDim, length)
	for _, p := range []struct {
		what string
		n    graph.Node
	}{{"embeddings", textTower.embeddings}, {"token ids", textTower.ids}, {"end token index", textTower.eot},
		{"attention mask (ones up to the end token)", textTower.mask}, {"position ids", textTower.positions}} {
		if p.n.OK() {
			found(p.what, "%s", describe(p.n))
		}
	}

	if len(textTower.cut) > 0 {
		labels := convert.Slice(textTower.cut, func(c graph.Node) string { return c.Op().Label() })
		found("prompts replace the output of", "%s", strings.Join(labels, ", "))
	}

	if causal := textTower.causal; causal != nil {
		found("causal", "%t", *causal)
	}

	found("text features", "%s", describe(textTower.output))
	table := textTower.table
	found("token embedding", "[%d,%d] %s in %s", table.rows, table.width, table.dtype,
		cmp.Or(table.file, table.model, textTower.name))
	for _, name := range m.files {
		size := int64(-1)
		if st, err := os.Stat(m.path(name)); err == nil {
			size = st.Size()
		}
		report.Files = append(report.Files, bundle.FileReport{Name: name, Size: size})
	}
}

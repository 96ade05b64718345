package exported

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"promptfed/models/bundle"
	"promptfed/runtime/convert"
	"promptfed/runtime/graph"
)

func (m *model) Report(r *bundle.Report) {
	t, i := m.text, m.image
	r.Found = append(r.Found, m.found...)
	found := func(what, format string, a ...any) {
		r.Found = append(r.Found, bundle.Finding{What: what, Value: fmt.Sprintf(format, a...)})
	}
	found("image tower", "%s: images of %d, features of size %d", i.name, i.size, i.embedDim)
	found("pixels", "%s", describe(i.input))
	found("image features", "%s", describe(i.output))
	if i.patches.OK() {
		found("patch features", "%s: %d of an image", describe(i.patches), i.count)
	}
	length := fmt.Sprintf("texts run at %d tokens", t.context)
	if t.short {
		length = "texts are padded only to the longest one"
	}
	found("text tower", "%s: width %d, context %d, features of size %d; %s", t.name, t.table.width, t.context,
		t.embedDim, length)
	for _, p := range []struct {
		what string
		n    graph.Node
	}{{"embeddings", t.embeddings}, {"token ids", t.ids}, {"end token index", t.eot},
		{"attention mask (ones up to the end token)", t.mask}, {"position ids", t.positions}} {
		if p.n.OK() {
			found(p.what, "%s", describe(p.n))
		}
	}
	if len(t.cut) > 0 {
		labels := convert.Slice(t.cut, func(c graph.Node) string { return c.Op().Label() })
		found("prompts replace the output of", "%s", strings.Join(labels, ", "))
	}
	found("causal", "%t", t.causal)
	found("text features", "%s", describe(t.output))
	where := t.table.file
	if where == "" {
		where = t.name
	}
	found("token embedding", "[%d,%d] %s in %s", t.table.rows, t.table.width, t.table.dtype, where)
	for _, name := range m.files {
		size := int64(-1)
		if st, err := os.Stat(filepath.Join(m.b.Dir, filepath.FromSlash(name))); err == nil {
			size = st.Size()
		}
		r.Files = append(r.Files, bundle.FileReport{Name: name, Size: size})
	}
}

package bundle

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync"

	"promptfed/models/clip"
	"promptfed/models/tokenizer"
	"promptfed/runtime/graph"
	"promptfed/runtime/onnx"
	"promptfed/runtime/tensor"
)

// list collects the files that the towers need, checks the sizes that bundle.json gives, and prepares the digest.
func (d *dropIn) list(b *Bundle) error {
	add := func(name string) {
		if name != "" && !slices.Contains(d.files, name) {
			d.files = append(d.files, name)
		}
	}
	add(d.image.name)
	add(d.text.name)
	add(d.text.table.file)
	for _, name := range []string{d.hand.TokenizerFile, preprocessorFile, "tokenizer.json", "vocab.json", "merges.txt",
		"bpe_simple_vocab_16e6.txt.gz", "bpe_simple_vocab_16e6.txt"} {
		if st, err := os.Stat(filepath.Join(b.dir, name)); name != "" && err == nil && st.Mode().IsRegular() {
			add(name)
		}
	}
	for _, f := range []*graph.File{d.image.file, d.text.file} {
		files, err := onnx.ExternalFiles(f.Proto)
		if err != nil {
			return err
		}
		for _, name := range files {
			add(name)
		}
	}
	slices.Sort(d.files)
	for _, name := range d.files {
		if _, err := os.Stat(filepath.Join(b.dir, filepath.FromSlash(name))); err != nil {
			return err
		}
	}
	for name, f := range d.hand.Files {
		st, err := os.Stat(filepath.Join(b.dir, filepath.FromSlash(name)))
		if !filepath.IsLocal(filepath.FromSlash(name)) || errors.Is(err, os.ErrNotExist) {
			return fmt.Errorf("files: %q is not a file in the bundle", name)
		}
		if err != nil {
			return err
		}
		if f.Size != 0 && st.Size() != f.Size {
			return fmt.Errorf("%s has %d bytes, %s says %d: the file is cut short or another one", name, st.Size(),
				ManifestFile, f.Size)
		}
	}
	d.digest = sync.OnceValue(func() string { return d.sum(b) })
	return nil
}

// verify compares the files whose SHA-256 bundle.json gives.
func (d *dropIn) verify(dir string) error {
	for name, want := range d.hand.Files {
		if want.SHA256 == "" {
			continue
		}
		f, err := fileOf(filepath.Join(dir, filepath.FromSlash(name)))
		if err != nil {
			return err
		}
		if f.SHA256 != want.SHA256 {
			return fmt.Errorf("%s: SHA-256 %.12s, %s says %.12s: the file was changed or damaged", name, f.SHA256,
				ManifestFile, want.SHA256)
		}
	}
	return nil
}

// sum is Bundle.Digest: over the contents of all files, and what bundle.json says of how they are used. What cannot be
// read gives a digest of its own, as reading it to run will say why.
func (d *dropIn) sum(b *Bundle) string {
	h := d.hand
	h.Name, h.Architecture, h.Source, h.LogitScale, h.LogScale, h.Notes, h.Files = "", "", "", 0, nil, nil,
		map[string]File{}
	for _, name := range d.files {
		f, err := fileOf(filepath.Join(b.dir, filepath.FromSlash(name)))
		if err != nil {
			f.SHA256 = err.Error()
		}
		h.Files[name] = f
	}
	text, err := json.Marshal(h)
	if err != nil { // it was read from JSON
		panic(err)
	}
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:])
}

// dropTokenizer reads the vocabulary: the file that bundle.json names, or the first that is in the folder.
func (b *Bundle) dropTokenizer() (*tokenizer.Tokenizer, error) {
	if b.tokens == nil {
		name := b.manifest.TokenizerFile
		if name != "" && !filepath.IsLocal(filepath.FromSlash(name)) {
			return nil, fmt.Errorf("tokenizer %q is not the path of a file inside the bundle", name)
		}
		t, err := tokenizer.Load(filepath.Join(b.dir, filepath.FromSlash(name)))
		if err != nil {
			return nil, err
		}
		b.tokens = t
	}
	return b.tokens, nil
}

// texts is Bundle.Sentences of an exported tower.
func (d *dropIn) texts(b *Bundle, g *graph.Graph, ids [][]int) (graph.Node, error) {
	longest := 0
	for _, s := range ids {
		longest = max(longest, len(s))
	}
	length := d.text.extent(longest)
	var flat, read []int
	tokens := make([][]int, len(ids))
	for i, s := range ids {
		tokens[i] = append(slices.Clone(s), slices.Repeat([]int{clip.PadID}, length-len(s))...)
		flat, read = append(flat, tokens[i]...), append(read, len(s)-1)
	}
	rows, err := b.Embed(flat)
	if err != nil {
		return graph.Node{}, err
	}
	emb := g.Const(tensor.Of(rows, len(ids), length, d.text.table.width))
	return d.text.build(g, emb, tokens, read)
}

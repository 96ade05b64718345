package converted

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"promptfed/models/checkpoint"
	"promptfed/models/clip"
	"promptfed/models/preprocess"
	"promptfed/models/tokenizer"
	"promptfed/runtime/atomicfile"
	"promptfed/runtime/tensor"
)

// preprocessing copies the checkpoint's preprocessing. If it states none, it is that of the library: SigLIP's for
// SigLIP's own names, else OpenAI's.
func (j *conversion) preprocessing() error {
	cfg, err := j.ckpt.Preprocessor()
	if err != nil {
		return err
	}

	settings := preprocess.CLIP(j.manifest.ImageSize)
	settings.Floor = j.ckpt.Format() == checkpoint.HuggingFace
	if j.ckpt.Format() != checkpoint.OpenCLIP && j.manifest.Vision.Pool == clip.AttentionPool {
		settings = preprocess.SigLIP(j.manifest.ImageSize)
	}

	switch {
	case cfg == nil && j.ckpt.Format() == checkpoint.HuggingFace:
		j.note("no preprocessor_config.json states how images are prepared, assumed: %v; put the model's own file "+
			"beside the weights if it differs", settings)
	case cfg != nil:
		data, err := json.Marshal(cfg)
		if err != nil {
			return err
		}
		if j.ckpt.Format() == checkpoint.OpenCLIP {
			settings, err = preprocess.FromOpenCLIP(data, j.manifest.ImageSize)
		} else {
			settings, err = preprocess.FromHF(data)
		}
		if err != nil {
			return err
		}
	}

	if settings.Size != j.manifest.ImageSize {
		j.note("the preprocessing makes images of %d pixels, but the image tower takes %d, which is used",
			settings.Size, j.manifest.ImageSize)
		settings.Size = j.manifest.ImageSize
	}

	j.manifest.Preprocess = settings
	return nil
}

// vocabulary writes tokenizer.json, and takes the padding token and the stripped tokens of the text treatment from it.
func (j *conversion) vocabulary(dir string) error {
	path := cmp.Or(j.Vocab, j.ckpt.File("tokenizer.json"), j.ckpt.File("vocab.json"), j.ckpt.File("spiece.model"),
		j.ckpt.File("vocab.txt"))
	if path == "" {
		return fmt.Errorf("the checkpoint has no vocabulary: add --vocab bpe_simple_vocab_16e6.txt.gz (OpenAI's " +
			"file), or --vocab FOLDER with tokenizer.json or vocab.json and merges.txt")
	}

	path, err := tokenizer.FindFile(path)
	if err != nil {
		return err
	}

	if _, err := os.Stat(filepath.Join(filepath.Dir(path), tokenizer.ConfigName)); err != nil &&
		j.ckpt.Format() == checkpoint.HuggingFace && filepath.Ext(path) == ".model" {
		return fmt.Errorf("%s: it needs the model's %s beside it, by which SigLIP's texts are cleaned and padded",
			path, tokenizer.ConfigName)
	}

	vocabulary, err := tokenizer.Load(path)
	if err == nil {
		vocabulary, err = j.weights.Arch.Texts.Apply(vocabulary)
	}

	if err != nil {
		return err
	}

	j.manifest.Texts = vocabulary.Cleaning()
	rows := j.weights.Arch.Vocab
	switch n := vocabulary.VocabSize(); {
	case n > rows:
		return fmt.Errorf("%s has %d tokens, but the checkpoint embeds %d: it is the vocabulary of another model; "+
			"give its own with --vocab", path, n, rows)
	case n < rows && !slices.Contains([]string{".json", ".model"}, filepath.Ext(path)) &&
		filepath.Base(path) != "vocab.txt":
		// Tokens of a list of merges are numbered by counting, so missing merges would give wrong numbers to all later
		// tokens.
		return fmt.Errorf("%s makes %d tokens, but the checkpoint embeds %d: it is cut short, or the vocabulary of "+
			"another model", path, n, rows)
	case n < rows:
		j.note("the checkpoint embeds %d tokens, of which the vocabulary has %d", rows, n)
	}

	if j.manifest.Text.Pad = vocabulary.Pad(); j.weights.Arch.PadToken >= 0 &&
		vocabulary.Pad() != j.weights.Arch.PadToken {
		return fmt.Errorf("%s pads texts with token %d, but the text tower masks token %d: give its own "+
			"vocabulary with --vocab", path, vocabulary.Pad(), j.weights.Arch.PadToken)
	}

	if err := j.endToken(vocabulary); err != nil {
		return err
	}

	return atomicfile.Write(filepath.Join(dir, tokenizerFile), vocabulary.Write)
}

// endToken compares the vocabulary's end token, at which texts are read here, with the token at which the checkpoint's
// own library reads them.
func (j *conversion) endToken(vocabulary *tokenizer.Tokenizer) error {
	end, last := j.weights.Arch.EndToken, vocabulary.VocabSize()-1
	switch {
	case end == checkpoint.LargestToken && vocabulary.EOT() != last && j.ckpt.Format() == checkpoint.HuggingFace:
		j.note("texts are read at the end token, %d, which is not the last of the vocabulary, %d: transformers may "+
			"read a text at a larger token", vocabulary.EOT(), last)
	case end == checkpoint.LargestToken && vocabulary.EOT() != last:
		return fmt.Errorf("texts are read at the largest token (pool_type argmax), but the vocabulary ends them with "+
			"token %d of %d: give the model's own vocabulary with --vocab", vocabulary.EOT(), last+1)
	case end >= 0 && end != vocabulary.EOT():
		return fmt.Errorf("the configuration reads texts at token %d, but the vocabulary ends them with %d: give the "+
			"model's own vocabulary with --vocab", end, vocabulary.EOT())
	}

	return nil
}

// writeWeights links the checkpoint's weights into the folder, or converts them. Tensors that the checkpoint does not
// store are computed and written to a file beside the linked ones.
func (j *conversion) writeWeights(dir string) error {
	items := j.weights.Tensors
	files := inPlace(items)
	if files == nil {
		items = j.weights.Fused()
	}

	total := int64(0)
	for _, it := range items {
		total += 4 * int64(tensor.Size(it.Shape))
	}

	progress := func(done int64) { j.Progress(done, total) }
	places := map[string]TensorLocation{}
	if files != nil {
		stored := slices.DeleteFunc(slices.Clone(items), func(t checkpoint.Tensor) bool { return t.Computed })
		items = slices.DeleteFunc(slices.Clone(items), func(t checkpoint.Tensor) bool { return !t.Computed })
		done, err := j.link(dir, stored, files, places, progress)
		if err != nil {
			return err
		}
		progress = func(n int64) { j.Progress(done+n, total) }
	}

	if len(items) > 0 {
		written, err := writeWeights(j.Context, filepath.Join(dir, weightsFile), weightsFile, items, progress)
		if err != nil {
			return err
		}
		maps.Copy(places, written)
	}

	j.manifest.Tokens = places[checkpoint.TokenEmbedding]
	delete(places, checkpoint.TokenEmbedding)
	j.manifest.Weights = places
	return nil
}

// inPlace returns the files that hold every stored item as float32 in a .safetensors file, or nil if some item is
// stored differently. ONNX Runtime could also read pickles, but a bundle must not hold executable content.
func inPlace(items []checkpoint.Tensor) []string {
	var files []string
	making := false
	for _, h := range items {
		if h.Computed {
			making = true
			continue
		}
		if h.File == "" || h.DType != "F32" || !strings.HasSuffix(h.File, ".safetensors") {
			return nil
		}
		if !slices.Contains(files, h.File) {
			files = append(files, h.File)
		}
	}

	if making && slices.ContainsFunc(files, func(path string) bool { return filepath.Base(path) == weightsFile }) {
		return nil // the name is taken
	}

	return files
}

// link links files into the folder, checks the items in them and adds their places. It returns the number of their
// bytes.
func (j *conversion) link(dir string, items []checkpoint.Tensor, files []string, places map[string]TensorLocation,
	progress func(int64)) (int64, error) {
	for _, path := range files {
		copied, err := atomicfile.LinkOrCopy(j.Context, path, filepath.Join(dir, filepath.Base(path)))
		if err != nil {
			return 0, err
		}
		if copied {
			j.note("%s was copied, because it cannot be linked from where it is", filepath.Base(path))
		}
	}

	done := int64(0)
	for _, h := range items {
		if err := parts(j.Context, h.Handle, func(*tensor.Tensor) error { return nil }); err != nil {
			return 0, err
		}
		done += h.Length
		progress(done)
		places[h.Name] = TensorLocation{File: filepath.Base(h.File), Offset: h.Offset, Length: h.Length,
			DType: h.DType, Shape: h.Shape}
	}

	return done, nil
}

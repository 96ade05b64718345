package converted_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"promptfed/models/bundle"
	"promptfed/models/bundle/converted"
	"promptfed/runtime/filetest"
	"promptfed/runtime/goldentest"
	"promptfed/runtime/safetensors"
	"promptfed/runtime/tensor"
)

// untouched checks that a failed conversion left nothing in its output folder.
func untouched(t *testing.T, what, dir string) {
	t.Helper()
	list, err := os.ReadDir(dir)
	goldentest.NoError(t, err)
	if len(list) > 0 {
		t.Errorf("%s: left %v behind", what, list)
	}
}

func TestConvertRefuses(t *testing.T) {
	whole := filetest.Read(t, "testdata/openai.pt")
	cut := filepath.Join(t.TempDir(), "cut.pt")
	filetest.Write(t, cut, whole[:len(whole)/2])
	cutSafe := filetest.Copy(t, t.TempDir(), "testdata/huggingface")
	goldentest.NoError(t, os.Truncate(filepath.Join(cutSafe, "model.safetensors"), 50_000))
	other := filepath.Join(t.TempDir(), "other.safetensors")
	goldentest.NoError(t, safetensors.WriteFile(other, tensor.Map{"fc.weight": tensor.New(3, 4)}, nil))
	short := filepath.Join(t.TempDir(), "short.txt")
	filetest.Write(t, short, "#version\ni n\nt h\n")
	lines := filetest.Read(t, "testdata/merges.txt")
	larger := filepath.Join(t.TempDir(), "larger.txt")
	filetest.Write(t, larger, append(lines, "q q\n"...))
	siglip := filetest.Copy(t, t.TempDir(), "testdata/siglip")
	goldentest.NoError(t, os.Remove(filepath.Join(siglip, "tokenizer_config.json")))
	for _, c := range []struct {
		what, src string
		o         converted.Options
		parts     []string
	}{
		{"SigLIP's texts", siglip, converted.Options{}, []string{"spiece.model", "tokenizer_config.json beside it"}},
		{"no vocabulary", "testdata/openai.pt", converted.Options{}, []string{"openai.pt",
			"--vocab bpe_simple_vocab_16e6.txt.gz"}},
		{"missing", "testdata/nothing.pt", converted.Options{}, []string{"testdata/nothing.pt"}},
		{"truncated archive", cut, converted.Options{}, []string{cut, "truncated"}},
		{"truncated safetensors", cutSafe, converted.Options{}, []string{cutSafe, "truncated"}},
		{"not a CLIP", other, converted.Options{}, []string{other, "not a CLIP", "fc.weight"}},
		{"short vocabulary", "testdata/openai.pt", converted.Options{Vocab: short}, []string{short, "516", "530"}},
		{"larger vocabulary", "testdata/huggingface", converted.Options{Vocab: larger}, []string{larger, "531", "530",
			"--vocab"}},
		{"missing vocabulary", "testdata/openai.pt", converted.Options{Vocab: "testdata/nothing"},
			[]string{"testdata/nothing"}},
	} {
		dir := t.TempDir()
		_, err := converted.Convert(c.src, filepath.Join(dir, "out"), c.o)
		goldentest.WantErrorOf(t, c.what, err, c.parts...)
		untouched(t, c.what, dir)
	}
	dir := t.TempDir()
	_, err := converted.Convert("testdata/huggingface", filepath.Join(dir, "a:b"), converted.Options{})
	goldentest.WantErrorOf(t, "bad name", err, `"a:b"`)
	untouched(t, "bad name", dir)
}

func TestConvertKeepsWhatIsThere(t *testing.T) {
	full := t.TempDir()
	filetest.Write(t, filepath.Join(full, "thesis.txt"), "x")
	_, err := converted.Convert("testdata/huggingface", full, converted.Options{})
	goldentest.WantErrorOf(t, "a folder with files", err, full, "has no bundle.json")
	if list, _ := os.ReadDir(full); len(list) != 1 {
		t.Errorf("the folder holds %v now", list)
	}

	b := convert(t, "testdata/huggingface", converted.Options{})
	dir := b.WeightsDir()
	if _, err := converted.Convert("testdata/openai.pt", dir, converted.Options{}); err == nil {
		t.Error("no vocabulary: no error")
	}
	if now, err := bundle.Open(dir); err != nil || now.Source != b.Source || now.Digest() != b.Digest() {
		t.Errorf("a failed conversion changed the bundle: %v", err)
	}
	ctx, cancel := context.WithCancelCause(context.Background())
	stop := errors.New("stopped by the user")
	cancel(stop)
	o := sources[0].o
	o.Context = ctx
	if _, err := converted.Convert("testdata/openai.pt", dir, o); !errors.Is(err, stop) && (err == nil ||
		!strings.Contains(err.Error(), stop.Error())) {
		t.Errorf("error %v, want %v", err, stop)
	}
	if _, err := bundle.Open(dir); err != nil {
		t.Error(err)
	}
	o.Context = nil
	old := b.Digest()
	if b, err = converted.Convert("testdata/openai.pt", dir, o); err != nil || b.Digest() == old || b.Verify() != nil {
		t.Fatalf("replacing a bundle: %v", err)
	}
	if _, err := os.Stat(filepath.Join(dir, "model.safetensors")); err == nil {
		t.Error("a file of the old bundle is left")
	}
	if list, _ := os.ReadDir(filepath.Dir(dir)); len(list) != 1 {
		t.Errorf("left behind: %v", list)
	}
	src := filepath.Join(dir, "weights.safetensors")
	_, err = converted.Convert(src, dir, converted.Options{})
	goldentest.WantErrorOf(t, "source inside the bundle", err, "choose another")
}

// Weights that are NaN are detected, whether they are converted (half precision) or linked (float32).
func TestConvertRefusesNaN(t *testing.T) {
	for _, c := range []struct {
		src, file, tensor string
		nan               []byte // little-endian
	}{
		{"testdata/openclip", "open_clip_model.safetensors", "ln_final.bias", []byte{0, 0x7e}},
		{"testdata/huggingface", "model.safetensors", "text_model.final_layer_norm.bias", []byte{0, 0, 0xc0, 0x7f}},
	} {
		src := filetest.Copy(t, t.TempDir(), c.src)
		path := filepath.Join(src, c.file)
		f, err := safetensors.Open(path)
		goldentest.NoError(t, err)
		info, err := f.Info(c.tensor)
		f.Close()
		goldentest.NoError(t, err)
		data := filetest.Read(t, path)
		copy(data[info.Offset+int64(3*len(c.nan)):], c.nan)
		filetest.Write(t, path, data)
		_, err = converted.Convert(src, filepath.Join(t.TempDir(), "out"),
			converted.Options{Vocab: "testdata/huggingface"})
		goldentest.WantErrorOf(t, c.src, err, c.tensor, "NaN")
	}
}

func TestOpenFindsDamage(t *testing.T) {
	for _, c := range []struct {
		what   string
		damage func(dir string) error
		parts  []string
	}{
		{"weights cut short", func(d string) error {
			return os.Truncate(filepath.Join(d, "weights.safetensors"), 70_000)
		}, []string{"weights.safetensors", "70000"}},
		{"weights with another byte", func(d string) error { return flip(filepath.Join(d, "weights.safetensors")) },
			[]string{"weights.safetensors: SHA-256 ", "bundle.json says ",
				": the file was changed or damaged; convert the checkpoint again"}},
		{"no image.onnx", func(d string) error { return os.Remove(filepath.Join(d, converted.ImageFile)) },
			[]string{converted.ImageFile, "missing"}},
		{"no bundle.json", func(d string) error { return os.Remove(filepath.Join(d, bundle.ManifestFile)) },
			[]string{"not a bundle"}},
		{"unknown key", set("logit_scal", 1), []string{"logit_scal"}},
		{"other version", set("bundle", 7), []string{"version 7"}},
		{"widths apart", set("text_width", 9), []string{"text_width is 9"}},
		{"a weight missing", edit(func(m map[string]any) { delete(m["weights"].(map[string]any), "ln_final.bias") }),
			[]string{"ln_final.bias"}},
		{"a weight outside", set("weights/ln_final.bias/offset", 1<<40), []string{"ln_final.bias"}},
		{"two tokens", set("token_embedding/shape", []int{2, 8}), []string{"is [2 8], must be [vocabulary,8]"}},
		// 2^24 tokens (bundle.MaxRows) are accepted, but there are as many bytes as before.
		{"2^24 tokens", set("token_embedding/shape", []int{1 << 24, 8}), []string{"takes 536870912 bytes, not"}},
		{"a file outside", set("tokenizer", "../tokenizer.json"), []string{"tokenizer.json"}},
		{"a scale of 1e40", edit(func(m map[string]any) { m["logit_scale"], m["logit_scale_log"] = 1e40, 92.1034037 }),
			[]string{"bundle.json: logit_scale 1e+40 must be"}},
		{"a negative scale", set("logit_scale", -1), []string{"bundle.json: logit_scale -1 must be"}},
		{"another scale", set("logit_scale", 7), []string{"logit_scale 7 is not the exponential"}},
		{"a huge bias", set("logit_bias", -1e30), []string{"bundle.json: logit_bias -1e+30 must be"}},
		{"a huge epsilon", set("vision/eps", 1e10), []string{"vision tower: eps 1e+10 of the norms"}},
		{"two colours", set("preprocess/mean", []float64{0.5, 0.5}), []string{"mean or std has 2 numbers, need 3"}},
		{"a tiny deviation", set("preprocess/std", []float64{1, 1, 1e-30}), []string{"std [1 1 1e-30] from 1e-05"}},
		{"too many layers", set("text/layers", 1000000), []string{"tensors"}},
	} {
		b := convert(t, "testdata/openai.pt", sources[0].o)
		goldentest.NoError(t, c.damage(b.WeightsDir()))
		_, err := bundle.Open(b.WeightsDir())
		goldentest.WantErrorOf(t, c.what, err, c.parts...)
	}
}

// flip changes a byte near the end of a file, but neither its size nor its modification time.
func flip(path string) error {
	st, err := os.Stat(path)
	if err != nil {
		return err
	}
	data, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	data[len(data)-3] ^= 1
	if err := os.WriteFile(path, data, 0o644); err != nil {
		return err
	}
	return os.Chtimes(path, st.ModTime(), st.ModTime())
}

// edit changes bundle.json.
func edit(change func(map[string]any)) func(string) error {
	return func(dir string) error { return rewrite(filepath.Join(dir, bundle.ManifestFile), change) }
}

// set changes one value of bundle.json; key has the names of the objects around it, with slashes.
func set(key string, value any) func(string) error {
	return edit(func(m map[string]any) {
		names := strings.Split(key, "/")
		for _, name := range names[:len(names)-1] {
			m = m[name].(map[string]any)
		}
		m[names[len(names)-1]] = value
	})
}

func TestDigest(t *testing.T) {
	b := convert(t, "testdata/openai.pt", sources[0].o)
	again, err := converted.Convert("testdata/openai.pt", filepath.Join(t.TempDir(), "other"), sources[0].o)
	goldentest.NoError(t, err)
	if b.Name == again.Name || b.Digest() != again.Digest() || len(b.Digest()) != 64 {
		t.Errorf("digests of one checkpoint: %s and %s", b.Digest(), again.Digest())
	}
	// The digest was recorded with version 3 of bundle.json. If it changes, machines with different versions of this
	// program consider each other's bundles of one checkpoint different, and features are computed again.
	if want := "a8b4e9f32c619b2e49539c56eb8ce8a18de93683ee31516d34bafabc6f5452cd"; b.Digest() != want {
		t.Errorf("digest %s, recorded is %s", b.Digest(), want)
	}
	if d := convert(t, "testdata/openclip", sources[2].o).Digest(); d == b.Digest() {
		t.Error("another preprocessing has the same digest")
	}
}

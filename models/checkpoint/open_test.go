package checkpoint

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"promptfed/runtime/filetest"
	"promptfed/runtime/goldentest"
	"promptfed/runtime/tensor"
)

// truths holds what PyTorch reads from checkpoints; tools/golden/checkpoint.py writes it.
func truths(t testing.TB) map[string]map[string]goldentest.Fact {
	t.Helper()
	var out map[string]map[string]goldentest.Fact
	goldentest.ReadJSON(t, "testdata/expected.json", &out)
	return out
}

func open(t testing.TB, path string, opts Options) *Checkpoint {
	t.Helper()
	c, err := Open(path, opts)
	goldentest.NoError(t, err)
	t.Cleanup(func() { c.Close() })
	return c
}

// loaded returns the values of a tensor.
func loaded(t testing.TB, h *Handle) *tensor.Tensor {
	t.Helper()
	x, err := h.Load()
	goldentest.NoError(t, err)
	return x
}

// Every value of every tensor in every format is the one that PyTorch reads.
func TestReadsWhatPyTorchReads(t *testing.T) {
	formats := map[string]Format{"openai.pt": OpenAI, "huggingface": HuggingFace, "sharded": HuggingFace,
		"openclip": OpenCLIP, "training.pt": StateDict, "tricky.pt": StateDict, "legacy.pt": StateDict}
	for name, want := range truths(t) {
		c := open(t, filepath.Join("testdata", name), Options{})
		if c.Format() != formats[name] {
			t.Errorf("%s: format %s, want %s", name, c.Format(), formats[name])
		}
		got := map[string]goldentest.Fact{}
		for _, n := range c.Names() {
			h, err := c.Tensor(n)
			goldentest.NoError(t, err)
			x := loaded(t, h)
			got[n] = goldentest.FactOf(x)
			if d := cmp.Diff(append([]int{}, h.Shape...), got[n].Shape); d != "" {
				t.Errorf("%s %s: the handle's shape differs from the tensor's: %s", name, n, d)
			}
			raw(t, name, h, x)
		}
		if d := cmp.Diff(want, got); d != "" {
			t.Errorf("%s: %s", name, d)
		}
	}
}

// raw compares File, Offset and Length of a float32 handle with the loaded values.
func raw(t *testing.T, file string, h *Handle, x *tensor.Tensor) {
	t.Helper()
	if h.File == "" || h.DType != "F32" {
		return
	}
	b := filetest.Read(t, h.File)
	var want bytes.Buffer
	binary.Write(&want, binary.LittleEndian, x.Data)
	if !bytes.Equal(want.Bytes(), b[h.Offset:h.Offset+h.Length]) {
		t.Errorf("%s %s: the bytes at offset %d are not the tensor", file, h.Name, h.Offset)
	}
}

// tools/golden/checkpoint.py determined from the strides which tensors are stored unchanged in the file.
func TestInPlace(t *testing.T) {
	for _, file := range []string{"tricky.pt", "legacy.pt"} {
		c := open(t, "testdata/"+file, Options{})
		for _, name := range c.Names() {
			h, _ := c.Tensor(name)
			want := true
			switch name {
			case "transposed", "slice", "step", "permuted", "expanded", "channels_last":
				want = false
			}
			if (h.File != "") != want {
				t.Errorf("%s %s: in place %v, want %v", file, name, h.File != "", want)
			}
		}
	}
	a, _ := open(t, "testdata/tricky.pt", Options{}).Tensor("tied_a")
	b, _ := open(t, "testdata/tricky.pt", Options{}).Tensor("tied_b")
	if a.Offset != b.Offset {
		t.Error("tied tensors lie in two places")
	}
}

func TestRows(t *testing.T) {
	c := open(t, "testdata/tricky.pt", Options{})
	// base is arange(24).reshape(4,6)/7, transposed is its transpose, and slice is base[1:3, ::2].
	for name, want := range map[string][]float32{
		"base": {6. / 7, 1, 8. / 7, 9. / 7, 10. / 7, 11. / 7}, "transposed": {1. / 7, 1, 13. / 7, 19. / 7},
		"slice": {12. / 7, 2, 16. / 7},
	} {
		h, _ := c.Tensor(name)
		part, err := h.Rows(1, 2)
		goldentest.NoError(t, err)
		x := loaded(t, part)
		if d := cmp.Diff(want, x.Data); d != "" || x.Shape[0] != 1 {
			t.Errorf("%s: shape %v, %s", name, x.Shape, d)
		}
		raw(t, name, part, x)
		if _, err := h.Rows(0, h.Shape[0]+1); err == nil {
			t.Errorf("%s: rows past the end", name)
		}
	}
}

func TestFolderFiles(t *testing.T) {
	c := open(t, "testdata/huggingface", Options{})
	for _, dir := range []string{"huggingface", "openclip"} {
		p, err := open(t, "testdata/"+dir, Options{}).Preprocessor()
		mean, _ := p["image_mean"].([]any)
		if mean == nil {
			mean, _ = p["mean"].([]any)
		}
		if err != nil || fmt.Sprint(mean) != "[0.48145466 0.4578275 0.40821073]" {
			t.Errorf("%s: preprocessing %v %v", dir, p, err)
		}
	}
	if c.File("preprocessor_config.json") == "" || c.File("vocab.json") != "" {
		t.Errorf("files %v", c.Files())
	}
	one := open(t, "testdata/huggingface/model.safetensors", Options{})
	if one.Format() != HuggingFace || one.config["model_type"] != "clip" {
		t.Errorf("the weights alone: format %s, config %v", one.Format(), one.config)
	}
}

// Hub repositories hold several formats.
func TestFolderWithBoth(t *testing.T) {
	for _, c := range []struct {
		from, add, as, config string
		want                  Format
	}{
		{"openclip", "huggingface/model.safetensors", "model.safetensors", `{"model_type":"clip"}`, HuggingFace},
		{"openclip", "huggingface/model.safetensors", "model.safetensors", `{"architecture":"vit_base"}`, OpenCLIP},
		{"openclip", "huggingface/model.safetensors", "open_clip_model.safetensors", `{"model_type":"clip"}`, OpenCLIP},
		{"huggingface", "openclip/open_clip_pytorch_model.bin", "open_clip_pytorch_model.bin", `{"model_type":"clip"}`,
			HuggingFace},
	} {
		dir := filetest.Copy(t, t.TempDir(), "testdata/"+c.from)
		b := filetest.Read(t, "testdata/"+c.add)
		for name, text := range map[string][]byte{c.as: b, "config.json": []byte(c.config),
			"open_clip_config.json": []byte("{}")} {
			filetest.Write(t, filepath.Join(dir, name), text)
		}
		if got := open(t, dir, Options{}).Format(); got != c.want {
			t.Errorf("%s beside %s, config %s: read as %s, want %s", c.as, c.from, c.config, got, c.want)
		}
	}
}

func TestOpenRefuses(t *testing.T) {
	write := func(name, text string) func(string) string {
		return func(dir string) string {
			path := filepath.Join(dir, name)
			filetest.Write(t, path, text)
			return path
		}
	}
	cut := func(name string, keep int) func(string) string {
		return func(dir string) string {
			b := filetest.Read(t, filepath.Join("testdata", name))
			return write(filepath.Base(name), string(b[:len(b)*keep/100]))(dir)
		}
	}
	shard := func(where string) func(string) string {
		return func(string) string {
			dir := filetest.Copy(t, t.TempDir(), "testdata/sharded")
			return filepath.Dir(write("model.safetensors.index.json", `{"weight_map":{"logit_scale":`+where+`}}`)(dir))
		}
	}
	for _, c := range []struct {
		name string
		make func(dir string) string
		want string
	}{
		{"missing", func(dir string) string { return filepath.Join(dir, "x.pt") }, "no such file"},
		{"empty folder", func(dir string) string { return dir }, "no weights there; want one of model.safetensors"},
		{"no OpenCLIP config", func(dir string) string {
			cut("openclip/open_clip_pytorch_model.bin", 100)(dir)
			return dir
		}, "open_clip_config.json is missing"},
		{"empty file", write("x.pt", ""), "empty"},
		{"text", write("x.bin", "hello"), "not a checkpoint"},
		{"LFS pointer", write("model.safetensors", "version https://git-lfs.github.com/spec/v1\noid"), "git lfs pull"},
		{"truncated archive", cut("openai.pt", 60), "truncated"},
		{"truncated legacy", cut("legacy.pt", 90), "truncated"},
		{"truncated legacy storage", cut("legacy.pt", 99), "are left; the file is truncated"},
		{"truncated legacy pickle", cut("legacy.pt", 20), "truncated"},
		{"truncated safetensors", cut("huggingface/model.safetensors", 90), "truncated"},
		{"safetensors of 5 bytes", write("x.safetensors", "12345"), "too short"},
		{"config is a list", func(string) string {
			dir := filetest.Copy(t, t.TempDir(), "testdata/huggingface")
			write("config.json", "[1]")(dir)
			return dir
		}, "not a JSON object"},
		{"shard elsewhere", shard(`"../x.safetensors"`), "same folder"},
		{"shard is a number", shard(`1`), "same folder"},
		{"shard missing", shard(`"x.safetensors"`), "no such file"},
		{"tensor not in its shard", shard(`"model-00002-of-00002.safetensors"`), "not in the shard"},
	} {
		_, err := Open(c.make(t.TempDir()), Options{})
		goldentest.WantErrorOf(t, c.name, err, c.want)
	}
	_, err := Open("testdata/openai.pt", Options{Activation: "relu"})
	goldentest.WantErrorOf(t, "activation relu", err, "quick_gelu")
}

// Needed names in turn what Open reads, of each layout, and nothing else of a repository: no other framework's
// weights, and pickles only where there are no safetensors.
func TestNeeded(t *testing.T) {
	others := []string{"README.md", ".gitattributes", "tf_model.h5", "flax_model.msgpack", "../config.json"}
	for _, c := range []struct {
		from  string
		extra []string
		want  string // files of each step
	}{
		{"testdata/huggingface", []string{"pytorch_model.bin", "open_clip_pytorch_model.bin"},
			"config.json preprocessor_config.json; model.safetensors"},
		{"testdata/openclip", nil, "open_clip_config.json; open_clip_pytorch_model.bin"},
		{"testdata/sharded", nil, "config.json; model.safetensors.index.json; " +
			"model-00001-of-00002.safetensors model-00002-of-00002.safetensors"},
	} {
		all, dir := append(append([]string{}, others...), c.extra...), t.TempDir()
		list, err := os.ReadDir(c.from)
		goldentest.NoError(t, err)
		for _, e := range list {
			all = append(all, e.Name())
		}
		var steps []string
		for {
			m, err := Needed(dir, all)
			goldentest.NoError(t, err)
			m = slices.DeleteFunc(m, func(name string) bool { return exists(filepath.Join(dir, name)) })
			if len(m) == 0 {
				break
			}
			steps = append(steps, strings.Join(m, " "))
			for _, name := range m {
				data := filetest.Read(t, filepath.Join(c.from, name))
				filetest.Write(t, filepath.Join(dir, name), data)
			}
		}
		if got := strings.Join(steps, "; "); got != c.want {
			t.Errorf("%s: %q, want %q", c.from, got, c.want)
		}
		if o, err := Open(dir, Options{}); err != nil {
			t.Error(err)
		} else {
			o.Close()
		}
	}
	_, err := Needed(t.TempDir(), others)
	goldentest.WantErrorOf(t, "without weights", err, "no weights there")
}

package converted_test

import (
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"promptfed/models/bundle"
	"promptfed/models/bundle/converted"
	"promptfed/models/checkpoint"
	"promptfed/models/clip"
	"promptfed/runtime/filetest"
	"promptfed/runtime/goldentest"
	"promptfed/runtime/ort/orttest"
	"promptfed/runtime/safetensors"
	"promptfed/runtime/tensor"
)

// A small CLIP with a ResNet image tower, written by tools/golden/resnet.py: a state dict in half precision, and a
// Hugging Face folder of two shards with transformers' names for the text tower and OpenAI's names after vision_model.
// for the image tower.
const (
	resnetPT = "testdata/resnet/openai.pt"
	resnetHF = "testdata/resnet/huggingface"
)

// resnetOptions states what the weights do not: heads and activation.
func resnetOptions() converted.Options {
	return converted.Options{Vocab: "testdata/merges.txt", Checkpoint: checkpoint.Options{TextHeads: 2,
		VisionHeads: 1, Epsilon: 1e-5, Activation: checkpoint.QuickGELU}}
}

// resnetGolden holds PyTorch's outputs; the pixels are squares of 8 pixels.
func resnetGolden(t *testing.T) tensor.Map {
	want := orttest.Golden(t, "testdata/resnet/golden.safetensors")
	small := want["squares"]
	pixels := tensor.New(small.Shape[0], 3, 64, 64)
	for i := range pixels.Data {
		x, y, plane := i%64, i/64%64, i/(64*64)
		pixels.Data[i] = small.Data[plane*64+y/8*8+x/8]
	}
	want["pixels"] = pixels
	return want
}

// stored returns the tensors of a checkpoint as float32 and int64.
func stored(t *testing.T, path string) tensor.Map {
	t.Helper()
	c, err := checkpoint.Open(path, checkpoint.Options{})
	goldentest.NoError(t, err)
	defer c.Close()
	m := tensor.Map{}
	for _, name := range c.Names() {
		h, err := c.Tensor(name)
		goldentest.NoError(t, err)
		if m[name], err = h.Load(); err != nil {
			t.Fatal(err)
		}
	}
	return m
}

// folder writes a checkpoint of float32 weights with a configuration.
func folder(t *testing.T, weights, config string, m tensor.Map, text string) string {
	t.Helper()
	dir := t.TempDir()
	goldentest.NoError(t, safetensors.WriteFile(filepath.Join(dir, weights), m, nil))
	filetest.Write(t, filepath.Join(dir, config), text)
	return dir
}

const resnetOpenCLIP = `{"model_cfg":{"embed_dim":6,"quick_gelu":true,"vision_cfg":{"image_size":64,` +
	`"layers":[1,2,1,1],"width":2,` +
	`"patch_size":null},` +
	`"text_cfg":{"context_length":32,"vocab_size":530,"width":8,"heads":2,"layers":2}}}`

func manifest(t *testing.T, b *bundle.Bundle) (m converted.Manifest) {
	t.Helper()
	goldentest.ReadJSON(t, filepath.Join(b.Dir, bundle.ManifestFile), &m)
	return m
}

func TestResNetSameAsPyTorch(t *testing.T) {
	orttest.RequireLibrary(t)
	want := resnetGolden(t)
	hf := filetest.Read(t, filepath.Join(resnetHF, "config.json"))
	for _, c := range []struct {
		name, src string
		linked    bool // the bundle's file is the checkpoint's own
	}{
		{"state dict", resnetPT, false},
		{"huggingface, half precision, sharded", resnetHF, false},
		{"huggingface", folder(t, "model.safetensors", "config.json", stored(t, resnetHF), string(hf)), true},
		{"huggingface with OpenAI's names", folder(t, "model.safetensors", "config.json", stored(t, resnetPT),
			string(hf)), true},
		{"openclip", folder(t, "open_clip_model.safetensors", "open_clip_config.json", stored(t, resnetPT),
			resnetOpenCLIP), true},
	} {
		t.Run(c.name, func(t *testing.T) {
			b := convert(t, c.src, resnetOptions())
			if b.Vision.Width != 64 || b.Vision.Heads != 1 || !slices.Equal(b.Vision.Stages, []int{1, 2, 1, 1}) ||
				b.Patches() != 4 || strings.Contains(strings.Join(b.Notes, ""), "guessed") {
				t.Errorf("%+v, notes %q", b.Vision, b.Notes)
			}
			sameAs(t, b, want, "end", "middle", "front", "sentences", "grad")
			in := map[string]bool{}
			for name, p := range manifest(t, b).Weights {
				if own := strings.Contains(name, "conv") || strings.Contains(name, "downsample"); c.linked &&
					own != (p.File == "weights.safetensors") {
					t.Errorf("%s lies in %s", name, p.File)
				}
				in[p.File] = true
			}
			if c.linked != (len(in) == 2) {
				t.Errorf("weights lie in %v", in)
			}
			for name := range in {
				if name == "weights.safetensors" {
					continue
				}
				here, err := os.Stat(filepath.Join(b.WeightsDir(), name))
				goldentest.NoError(t, err)
				if there, err := os.Stat(filepath.Join(c.src, name)); err != nil || !os.SameFile(here, there) {
					t.Errorf("%s is not the checkpoint's own", name)
				}
			}
			r, err := bundle.Inspect(b.WeightsDir())
			if err != nil || len(r.Tensors) != len(manifest(t, b).Weights)+1 {
				t.Errorf("inspect: %d tensors, %v", len(r.Tensors), err)
			}
		})
	}
}

// A checkpoint's own file may have the name of the file of folded weights.
func TestResNetFileNamedWeights(t *testing.T) {
	orttest.RequireLibrary(t)
	dir := t.TempDir()
	src := filepath.Join(dir, "weights.safetensors")
	goldentest.NoError(t, safetensors.WriteFile(src, stored(t, resnetPT), nil))
	b := convert(t, src, resnetOptions())
	images(t, b, resnetGolden(t))
	if files := manifest(t, b).Files; len(files) != 4 || files["weights.safetensors"].Size == 0 {
		t.Errorf("files %v", files)
	}
}

// Folding by hand: gain 2 and variance 0.25-1e-5 make a scale of 2/0.5 = 4; with mean 3 and bias 1, weights are
// multiplied by 4 and the bias is 1-3·4 = -11.
func TestFoldByHand(t *testing.T) {
	m := stored(t, resnetPT)
	w := m["visual.conv1.weight"]
	for name, v := range map[string]float32{"weight": 2, "bias": 1, "running_mean": 3, "running_var": 0.25 - 1e-5} {
		m["visual.bn1."+name].Data[0] = v
	}
	before := w.Clone()
	b := convert(t, folder(t, "open_clip_model.safetensors", "open_clip_config.json", m, resnetOpenCLIP),
		resnetOptions())
	got := stored(t, filepath.Join(b.WeightsDir(), "weights.safetensors"))
	if bias := got["visual.conv1.bias"].Data[0]; math.Abs(float64(bias)+11) > 1e-5 {
		t.Errorf("bias %g, want -11", bias)
	}
	for i, v := range got["visual.conv1.weight"].Data {
		if d := v - 4*before.Data[i]; math.Abs(float64(d)) > 1e-5 {
			t.Errorf("weight %d: %g, want %g", i, v, 4*before.Data[i])
		}
	}
}

func TestResNetRefused(t *testing.T) {
	nan := float32(math.NaN())
	const norm = "visual.layer2.1.bn2."
	for _, c := range []struct {
		what   string
		change func(tensor.Map)
		parts  []string
	}{
		{"negative variance", func(m tensor.Map) { m[norm+"running_var"].Data[1] = -0.5 }, []string{norm +
			"running_var", "-0.5", "variance"}},
		{"variance that is no number", func(m tensor.Map) { m[norm+"running_var"].Data[1] = nan }, []string{norm +
			"running_var", "NaN"}},
		{"infinite variance", func(m tensor.Map) { m[norm+"running_var"].Data[0] = float32(math.Inf(1)) },
			[]string{norm + "running_var", "Inf"}},
		{"mean that is no number", func(m tensor.Map) { m[norm+"running_mean"].Data[0] = nan }, []string{norm +
			"running_mean", "NaN"}},
		{"weight that is no number", func(m tensor.Map) { m["visual.layer2.1.conv2.weight"].Data[3] = nan },
			[]string{"visual.layer2.1.conv2.weight", "NaN"}},
		{"missing variance", func(m tensor.Map) { delete(m, norm+"running_var") }, []string{norm + "running_var",
			"missing"}},
		{"missing shortcut", func(m tensor.Map) { delete(m, "visual.layer3.0.downsample.0.weight") },
			[]string{"visual.layer3.0.downsample.0.weight", "missing"}},
		{"shape", func(m tensor.Map) { m["visual.layer1.0.conv2.weight"] = tensor.New(2, 2, 1, 1) },
			[]string{"visual.layer1.0.conv2.weight", "[2 2 1 1]", "[2 2 3 3]"}},
		{"missing block", func(m tensor.Map) {
			for name := range m {
				if strings.HasPrefix(name, "visual.layer2.0.") {
					delete(m, name)
				}
			}
		}, []string{"visual.layer2.0", "missing"}},
		{"unknown tensor", func(m tensor.Map) { m["visual.layer1.0.se.weight"] = tensor.New(2) },
			[]string{"visual.layer1.0.se.weight"}},
		{"cells", func(m tensor.Map) { m["visual.attnpool.positional_embedding"] = tensor.New(6, 64) },
			[]string{"visual.attnpool.positional_embedding", "6 positions"}},
		{"no pooling", func(m tensor.Map) { delete(m, "visual.attnpool.k_proj.bias") },
			[]string{"visual.attnpool.k_proj.bias", "missing"}},
	} {
		m := stored(t, resnetPT)
		c.change(m)
		dir := t.TempDir()
		_, err := converted.Convert(folder(t, "open_clip_model.safetensors", "open_clip_config.json", m,
			resnetOpenCLIP), filepath.Join(dir, "out"), resnetOptions())
		goldentest.WantErrorOf(t, c.what, err, c.parts...)
		untouched(t, c.what, dir)
	}
	for config, part := range map[string]string{
		strings.Replace(resnetOpenCLIP, "[1,2,1,1]", "[3,4,6,3]", 1): "layers is [3 4 6 3], but the " +
			"weights say [1 2 1 1]",
		strings.Replace(resnetOpenCLIP, `"width":2`, `"width":64`, 1): "width is 64, but the weights say 2",
		strings.Replace(resnetOpenCLIP, `"image_size":64`, `"image_size":9`,
			1): "image_size is 9, but the weights say 64",
		strings.Replace(resnetOpenCLIP, `"width":2`, `"width":2,"head_width":48`, 1): "head_width 48 does not divide",
	} {
		src := folder(t, "open_clip_model.safetensors", "open_clip_config.json", stored(t, resnetPT), config)
		_, err := converted.Convert(src, filepath.Join(t.TempDir(), "out"), resnetOptions())
		goldentest.WantErrorOf(t, config, err, part)
	}
}

// A manifest may not claim a ResNet that its weights do not have, or one whose tensors take long to list.
func TestResNetManifest(t *testing.T) {
	b := convert(t, resnetPT, resnetOptions())
	path := filepath.Join(b.WeightsDir(), bundle.ManifestFile)
	data := filetest.Read(t, path)
	for _, stages := range []string{"1,2,2,1", "1000000000,1,1,1", "1,2,1", "0,2,1,1"} {
		text := slices.Concat([]byte(nil), data)
		bad := strings.Replace(strings.Join(strings.Fields(string(text)), ""), `"stages":[1,2,1,1]`, `"stages":[`+
			stages+`]`, 1)
		filetest.Write(t, path, bad)
		_, err := bundle.Open(b.WeightsDir())
		goldentest.WantErrorOf(t, stages, err, path)
	}
	if v := (clip.VisionArch{Width: 64, Stages: []int{1, 2, 1, 1}}); len(v.Convolutions()) != 3+5*3+4 {
		t.Errorf("%d convolutions", len(v.Convolutions()))
	}
}

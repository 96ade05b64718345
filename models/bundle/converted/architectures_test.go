package converted_test

import (
	"cmp"
	"encoding/base64"
	"encoding/binary"
	"encoding/csv"
	"encoding/json"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"

	"promptfed/models/bundle"
	"promptfed/models/bundle/bundletest"
	"promptfed/models/bundle/converted"
	"promptfed/models/clip"
	"promptfed/runtime/busytest"
	"promptfed/runtime/filetest"
	"promptfed/runtime/goldentest"
	"promptfed/runtime/graph"
	"promptfed/runtime/ort/orttest"
	"promptfed/runtime/safetensors"
	"promptfed/runtime/tensor"
)

// architecture is a small version of a tower of another library; tools/golden/architectures.py writes them.
type architecture struct {
	Library, Name, Vocabulary string
	Files                     map[string]json.RawMessage // of the checkpoint's folder, except the weights
	Tensors                   []tensorShape
	// Want is the library's output: base64 of float32 rows, each multiplied with the matrix of sketch. It is nil if the
	// architecture must be refused.
	Want *struct {
		Image, Text, Prompts, Gradient string
		Loss, Scale, Bias              float64
	}
}

type tensorShape struct {
	name  string
	shape []int
}

func (s *tensorShape) UnmarshalJSON(data []byte) error {
	return json.Unmarshal(data, &[]any{&s.name, &s.shape})
}

type architectures struct {
	Texts, Classes []string
	Labels         []int
	Entries        []architecture
}

// libraries are those of testdata/architectures.csv, which holds the results of TestArchitectures (UPDATE=1 writes it),
// with their names in docs/models.md, which has the numbers of results.
var libraries = []struct{ library, name string }{{"open_clip", "open_clip 3.3.0"}, {"timm", "timm 1.0.31"},
	{"transformers", "transformers 5.23"}, {"variant", "single settings of OpenCLIP"}}

// TestArchitectures converts small versions, with weights from a formula, of every configuration of open_clip, every
// vit_* of timm, every model of transformers with features of images and texts, and variants of them. Each is either
// within 1e-4 of the library's output (features of images and texts, the loss, the gradient of a prompt), or refused in
// one line. The expected numbers are those of tools/golden/architectures.py. Without PROMPTFED_TEST_SOAK, an eighth of
// those that are not refused is converted.
func TestArchitectures(t *testing.T) {
	orttest.RequireLibrary(t)
	all := readArchitectures(t)
	only := regexp.MustCompile(os.Getenv("ARCHITECTURES"))
	results := make([]string, len(all.Entries))
	var worst sync.Map
	t.Run("each", func(t *testing.T) {
		for i, a := range all.Entries {
			if !only.MatchString(a.Library+"/"+a.Name) || a.Want != nil && !busytest.Part(i, 8) {
				continue
			}
			t.Run(a.Library+"/"+a.Name, func(t *testing.T) {
				t.Parallel()
				b, err := a.convert(t)
				switch {
				case err != nil && strings.Contains(err.Error(), "\n"):
					t.Errorf("refused in several lines: %v", err)
				case err != nil:
					results[i] = reason(err)
				case a.Want == nil:
					t.Errorf("converted, but must be refused")
				default:
					worst.Store(i, a.compare(t, all, b))
				}
			})
		}
	})
	largest := 0.0
	worst.Range(func(_, v any) bool { largest = max(largest, v.(float64)); return true })
	t.Logf("largest difference %.2g", largest)
	if os.Getenv("ARCHITECTURES") == "" && !t.Failed() {
		all.sameLists(t, results)
	}
}

// A configuration that is only the model_cfg has the same meaning as the whole one.
func TestBareModelConfig(t *testing.T) {
	orttest.RequireLibrary(t)
	all := readArchitectures(t)
	const config = "open_clip_config.json"
	at := slices.IndexFunc(all.Entries, func(a architecture) bool { return a.Name == "BERT, pooling layer" })
	a := all.Entries[at]
	var whole map[string]json.RawMessage
	goldentest.NoError(t, json.Unmarshal(a.Files[config], &whole))
	a.Files[config] = whole["model_cfg"]
	b, err := a.convert(t)
	goldentest.NoError(t, err)
	a.compare(t, all, b)
}

func readArchitectures(t *testing.T) (all architectures) {
	goldentest.ReadJSON(t, "testdata/architectures.json.gz", &all)
	return all
}

// convert writes the checkpoint and converts it.
func (a architecture) convert(t *testing.T) (*bundle.Bundle, error) {
	dir := t.TempDir()
	src := filetest.Folder(t, dir, "checkpoint")
	weights := "model.safetensors"
	for name, text := range a.Files {
		filetest.Write(t, filepath.Join(src, name), text)
		if name == "open_clip_config.json" {
			weights = "open_clip_model.safetensors"
		}
	}
	m := tensor.Map{}
	for _, s := range a.Tensors {
		m[s.name] = formula(s.name, s.shape...)
	}
	goldentest.NoError(t, safetensors.WriteFile(filepath.Join(src, weights), m, nil))
	return converted.Convert(src, filepath.Join(dir, "bundle"), converted.Options{
		Vocab: filepath.Join("../../..", a.Vocabulary)})
}

// particular matches the parts of a refusal that differ between runs or that the list omits: paths, names of towers of
// timm, tensors, and the next step.
var particular = []struct {
	find *regexp.Regexp
	with string
}{
	{regexp.MustCompile(`^/\S*/(checkpoint|bundle): `), ""}, {regexp.MustCompile(`converting /\S*: `), ""},
	{regexp.MustCompile(`^open_clip_config.json: model_cfg.`), ""},
	{regexp.MustCompile(`_name "[^"]*" is not supported, because`), "_name:"},
	{regexp.MustCompile(`tensor "[^"]*" belongs to`), "the text tower is"},
	{regexp.MustCompile(` \(hf_model_name [^)]*\)`), ""}, {regexp.MustCompile(`model_type "[^"]*"`), "model_type"},
	{regexp.MustCompile(`: export the model from PyTorch with .* \(docs/dropin.md\)$`), ""},
}

// reason returns a refusal as the list shows it.
func reason(err error) string {
	text := err.Error()
	for _, p := range particular {
		text = p.find.ReplaceAllString(text, p.with)
	}
	return text
}

// compare runs the towers and returns the largest difference, relative to the largest value.
func (a architecture) compare(t *testing.T, all architectures, b *bundle.Bundle) float64 {
	worst := 0.0
	differs := func(what string, got []float64, want string) {
		raw, err := base64.StdEncoding.DecodeString(want)
		if err != nil || len(raw) != 4*len(got) {
			t.Errorf("%s: %d numbers, want %d (%v)", what, len(got), len(raw)/4, err)
			return
		}
		most, largest := 0.0, 0.0
		for i, v := range got {
			w := float64(math.Float32frombits(binary.LittleEndian.Uint32(raw[4*i:])))
			most, largest = max(most, math.Abs(v-w)), max(largest, math.Abs(w))
		}
		if largest == 0 { // the last token of a causal tower that is read at the first token
			largest = 1
		}
		if worst = max(worst, most/largest); !(most <= orttest.Tolerance(1e-4)*largest) {
			t.Errorf("%s: differs by %.3g of the largest value", what, most/largest)
		}
	}
	differs1 := func(what string, got, want float64) {
		if d := math.Abs(got - want); !(d <= orttest.Tolerance(1e-4)*max(1, math.Abs(want))) {
			t.Errorf("%s: %g, want %g", what, got, want)
		}
	}
	differs1("logit scale", b.LogitScale, a.Want.Scale)
	differs1("logit bias", b.LogitBias, a.Want.Bias)
	size := b.Preprocess.Size
	image := a.image(t, b, tensor.Map{bundle.PixelsInput: formula("pixels", 2, 3, size, size)})
	differs("image", sketch(image), a.Want.Image)
	g := graph.New()
	ctx := g.Input("prompt", graph.Float, graph.Static(3, b.Text.Width))
	texts := bundletest.Sentences(t, b, g, all.Texts...)
	prompts := bundletest.Prompts(t, b, g, all.Classes, clip.Prompt{Ctx: ctx})
	logits := g.Const(image).L2Normalize().MatMul(prompts[0].L2Normalize().Transpose(1, 0)).MulScalar(b.LogitScale)
	loss := graph.CrossEntropy(logits, g.Ints(all.Labels...))
	d := orttest.Gradients(t, loss, ctx)
	model := orttest.Model(t, graph.Output{Name: "text", Node: texts}, graph.Output{Name: "prompts", Node: prompts[0]},
		graph.Output{Name: "loss", Node: loss}, graph.Output{Name: "gradient", Node: d[0]})
	out := orttest.Run(t, model, b.WeightsDir(), tensor.Map{"prompt": formula("prompt", 3, b.Text.Width)})
	differs("text", sketch(out["text"]), a.Want.Text)
	differs("prompts", sketch(out["prompts"]), a.Want.Prompts)
	differs1("loss", float64(out["loss"].Data[0]), a.Want.Loss)
	differs("gradient", sketch(out["gradient"]), a.Want.Gradient)
	return worst
}

func (a architecture) image(t *testing.T, b *bundle.Bundle, in tensor.Map) *tensor.Tensor {
	g := graph.New()
	n, _, err := b.Image(g, bundle.AddPixelsInput(g, 0, b.Preprocess.Size), clip.VisionPrompts{})
	goldentest.NoError(t, err)
	model := orttest.Model(t, graph.Output{Name: "image", Node: n})
	return orttest.Run(t, model, b.WeightsDir(), in)["image"]
}

// uniform returns n numbers in [-1,1), times scale, plus offset: FNV-1a of the name, then the steps of SplitMix64.
func uniform(name string, n int, scale, offset float32) []float32 {
	h := uint64(14695981039346656037)
	for _, b := range []byte(name) {
		h = (h ^ uint64(b)) * 1099511628211
	}
	out := make([]float32, n)
	for i := range out {
		x := h + uint64(i+1)*0x9E3779B97F4A7C15
		x = (x ^ x>>30) * 0xBF58476D1CE4E5B9
		x = (x ^ x>>27) * 0x94D049BB133111EB
		out[i] = float32((float32((x^x>>31)>>40)*0x1p-23-1)*scale) + offset
	}
	return out
}

// formula returns a tensor of the formula of tools/golden/architectures.py.
func formula(name string, shape ...int) *tensor.Tensor {
	offset, scale := formulaRule(name, shape)
	return tensor.Of(uniform(name, tensor.Size(shape), float32(scale), float32(offset)), shape...)
}

func formulaRule(name string, shape []int) (offset, scale float64) {
	last := name[strings.LastIndex(name, ".")+1:]
	has := func(words ...string) bool {
		return slices.ContainsFunc(words, func(w string) bool { return strings.Contains(name, w) })
	}
	switch {
	case last == "logit_scale":
		return 2.5, 0.5
	case last == "logit_bias":
		return -3, 1
	case last == "gamma" || last == "running_var":
		return 1, 0.5
	case len(shape) < 2 && last == "weight":
		return 1, 0.3
	case len(shape) < 2:
		return 0, 0.3
	case has("position", "pos_embed", "cls_token", "probe", "latent"):
		return 0, 0.5
	case has("token_embedding", "word_embeddings", "token_type_embeddings"):
		return 0, 0.6
	}
	inputs := tensor.Size(shape[1:])
	if last == "proj" || last == "text_projection" {
		inputs = shape[0]
	}
	scale = math.Sqrt(3 / float64(inputs))
	if has("in_proj", "qkv", "q_proj", "k_proj", "query", "key", "attn_pool.q.", "attn_pool.kv.") {
		scale *= 2
	}
	return 0, scale
}

// sketch multiplies each row of x [n,d] with a matrix [d,16] of the formula, so that few numbers represent all.
func sketch(x *tensor.Tensor) []float64 {
	d := x.Shape[len(x.Shape)-1]
	m := uniform("sketch", 16*d, 1, 0)
	out := make([]float64, x.Len()/d*16)
	for i, v := range x.Data {
		for j := range 16 {
			out[i/d*16+j] += float64(v) * float64(m[i%d*16+j])
		}
	}
	return out
}

// sameLists compares testdata/architectures.csv and docs/models.md with the results.
func (all architectures) sameLists(t *testing.T, results []string) {
	var list strings.Builder
	w := csv.NewWriter(&list)
	rows := [][]string{{"library", "configuration", "result"}}
	page := string(filetest.Read(t, "../../../docs/models.md"))
	for _, l := range libraries {
		exact, before := 0, len(rows)
		for i, a := range all.Entries {
			if a.Library != l.library {
				continue
			}
			if rows = append(rows, []string{l.name, a.Name, cmp.Or(results[i], "exact")}); results[i] == "" {
				exact++
			}
		}
		say := fmt.Sprintf("%s (%d exact, %d refused)", l.name, exact, len(rows)-before-exact)
		if !strings.Contains(strings.Join(strings.Fields(page), " "), say) {
			t.Errorf("docs/models.md does not say: %s", say)
		}
	}
	goldentest.NoError(t, w.WriteAll(rows))
	path := "testdata/architectures.csv"
	if os.Getenv("UPDATE") != "" {
		filetest.Write(t, path, list.String())
	} else if list.String() != string(filetest.Read(t, path)) {
		t.Errorf("%s lists other results; UPDATE=1 go test -run TestArchitectures writes it", path)
	}
}

package exported_test

import (
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	"promptfed/models/bundle"
	"promptfed/models/bundle/exported"
	"promptfed/models/clip"
	"promptfed/runtime/filetest"
	"promptfed/runtime/goldentest"
	"promptfed/runtime/graph"
	"promptfed/runtime/onnx"
	"promptfed/runtime/onnx/onnxtest"
	"promptfed/runtime/ort/orttest"
	"promptfed/runtime/tensor"
)

// maxTower limits how much opening an exported tower and building its graphs may allocate, in bytes; a valid one of the
// tests takes 30 MB.
const maxTower = 1 << 30

// useTower opens a folder of exported towers and builds all graphs of it without running them.
func useTower(t *testing.T, dir string) error {
	t.Helper()
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	defer func() {
		runtime.ReadMemStats(&after)
		if used := after.TotalAlloc - before.TotalAlloc; used > maxTower {
			t.Errorf("%d MiB allocated", used>>20)
		}
	}()
	b, err := bundle.Open(dir)
	if err != nil {
		return err
	}
	g := graph.New()
	ctx := g.Input("ctx", graph.Float, graph.Static(4, b.Text.Width))
	if _, err := b.Prompts(g, []string{"cat", "sea lion"}, []clip.Prompt{{Ctx: ctx}}); err != nil {
		return err
	}
	pixels := g.Input("pixels", graph.Float, graph.Static(5, 3, b.Preprocess.Size, b.Preprocess.Size))
	if _, _, err := b.Image(g, pixels, clip.VisionPrompts{}); err != nil {
		return err
	}
	_, err = b.ImageModel()
	return err
}

func changed(t *testing.T, dir, file string, change func(*onnx.ModelProto)) {
	t.Helper()
	path := filepath.Join(dir, file)
	m, err := onnx.Unmarshal(filetest.Read(t, path))
	goldentest.NoError(t, err)
	change(m)
	filetest.Write(t, path, onnxtest.Marshal(t, m))
}

// smallTowers returns a folder of two towers without positions, which accept any sizes: features of images are the
// means of their colours, those of texts the sums of their embeddings, times a matrix.
func smallTowers(t *testing.T, image, text graph.Shape) string {
	t.Helper()
	const tower = "openai-emb-cut-113-torchscript"
	dir := copyTower(t, tower, string(filetest.Read(t, filepath.Join("testdata", tower, bundle.ManifestFile))))
	g := graph.New()
	x := g.Input("pixels", graph.Float, image)
	putTower(t, dir, "image.onnx", x.Mean(2, 3).MatMul(g.Const(tensor.New(3, 6))))
	g = graph.New()
	x, mask := g.Input("embeddings", graph.Float, text), g.Input("attention_mask", graph.Float, text[:2])
	putTower(t, dir, "text.onnx", x.Mul(mask.Unsqueeze(2)).Sum(1).MatMul(g.Const(tensor.New(text[2].N, 6))))
	return dir
}

func putTower(t *testing.T, dir, file string, features graph.Node) {
	t.Helper()
	model := orttest.Model(t, graph.Output{Name: "features", Node: features})
	filetest.Write(t, filepath.Join(dir, file), onnxtest.Marshal(t, model))
}

// A sum of tokens [4,B,6] and of one vector for each image [B,6], which every path passes, is not the start of a block.
func TestSumsOfOtherRanksAreNoBlocks(t *testing.T) {
	dir := smallTowers(t, graph.Static(2, 3, 16, 16), graph.Static(2, 32, 8))
	g := graph.New()
	x := g.Input("pixels", graph.Float, graph.Shape{graph.Sym("B"), graph.StaticDim(3), graph.StaticDim(16),
		graph.StaticDim(16)})
	x = x.Mean(2, 3).MatMul(g.Const(tensor.New(3, 6)))
	tokens := x.Unsqueeze(0).Mul(g.Const(tensor.New(4, 1, 6))).Softmax(-1)
	putTower(t, dir, "image.onnx", x.Add(tokens).Mean(0))
	b, err := bundle.Open(dir)
	goldentest.NoError(t, err)
	if b.TakesPromptTokens() {
		t.Error("it takes prompt tokens")
	}
}

// Sizes in a file are limited before anything of that size is allocated. Otherwise a batch of 2^35 would take gigabytes
// for lists of indices, and a batch of 100,000 would take 9.8 GB for any number of images.
func TestSizesOfExportedTowersAreBounded(t *testing.T) {
	image, text := graph.Static(2, 3, 16, 16), graph.Static(2, 32, 8)
	goldentest.NoError(t, useTower(t, smallTowers(t, image, text)))
	for _, c := range []struct {
		image, text graph.Shape
		want        string
	}{
		{graph.Static(1<<24, 3, 16, 16), text, "batch is fixed at 16777216, and at most 1024 are supported"},
		{graph.Static(100_000, 3, 16, 16), text, "batch is fixed at 100000, and at most 1024 are supported"},
		{graph.Static(1000, 3, 400, 400), text, "a batch of 1000 times [3 400 400] numbers is more than"},
		{graph.Static(1, 3, 8000, 8000), text, "images of 8000 pixels on a side; at most 4096"},
		{image, graph.Static(1<<24, 32, 8), "batch is fixed at 16777216, and at most 1024 are supported"},
		{image, graph.Static(2, 1<<24, 8), "texts of 16777216 tokens; at most 8192 are supported"},
		{image, graph.Static(2, 32, 1<<24), "it is 8 wide, the tower takes 16777216"},
	} {
		goldentest.WantErrorOf(t, c.want, useTower(t, smallTowers(t, c.image, c.text)), c.want)
	}
	for _, size := range []int64{1 << 31, 1 << 35, 1 << 62} {
		for _, file := range []string{"image.onnx", "text.onnx"} {
			for axis := range 3 {
				dir := smallTowers(t, image, text)
				changed(t, dir, file, func(m *onnx.ModelProto) {
					for _, in := range m.Graph.Input {
						if s := in.Type.GetTensorType().Shape; axis < len(s.Dim) {
							s.Dim[axis].Value = &onnx.TensorShapeProto_Dimension_DimValue{DimValue: size}
						}
					}
				})
				if err := useTower(t, dir); err == nil {
					t.Errorf("axis %d of %d in %s was accepted", axis, size, file)
				}
			}
		}
	}
}

// Rows of tokens outside the model are checked against their file, whatever names them, and again when they are read,
// since the file may have been truncated since.
func TestTokenTableThatEndsEarly(t *testing.T) {
	const tower = "hf-sdpa-mask-dynamo-18"
	dir := copyTower(t, tower, "{}")
	var rows *onnx.TensorProto
	put := func(e onnx.External) {
		changed(t, dir, "text.onnx", func(m *onnx.ModelProto) {
			for w := range onnx.Tensors(m) {
				if len(w.Dims) == 2 && w.Dims[0] == 530 && w.Dims[1] == 8 {
					if len(w.RawData) > 0 {
						filetest.Write(t, filepath.Join(dir, "rows.bin"), "head"+string(w.RawData)+"tail")
					}
					rows = w
					onnx.SetExternal(w, e)
				}
			}
		})
	}
	whole := onnx.External{File: "rows.bin", Offset: 4, Length: 530 * 8 * 4}
	put(whole)
	if rows == nil {
		t.Fatal("the tower has no table [530,8]")
	}
	b, err := bundle.Open(dir)
	goldentest.NoError(t, err)
	if _, err := b.Embed([]int{529}); err != nil {
		t.Fatal(err)
	}
	goldentest.NoError(t, os.Truncate(filepath.Join(dir, "rows.bin"), 4+530*8*4-2))
	_, err = b.Embed([]int{529})
	goldentest.WantErrorOf(t, "a file that was cut while it was used", err, "cut short")
	_, err = bundle.Open(dir)
	goldentest.WantErrorOf(t, "a file that is cut", err, `tensor "`+rows.Name+`"`, "cut short")
	put(onnx.External{File: "rows.bin", Offset: 4, Length: 529 * 8 * 4})
	_, err = bundle.Open(dir)
	goldentest.WantErrorOf(t, "a table of fewer rows", err, "which take "+strconv.Itoa(530*8*4))
}

// An .onnx file with the rows of the tokens is a file of the bundle: it is copied. Behind a link, as in Hugging Face's
// cache, it is read completely.
func TestTokenTableInAnotherModel(t *testing.T) {
	dir := smallTowers(t, graph.Static(2, 3, 16, 16), graph.Static(2, 32, 8))
	filetest.Write(t, filepath.Join(dir, bundle.ManifestFile),
		`{"token_embedding": {"file": "tokens.onnx", "tensor": "features"}}`)
	elsewhere := t.TempDir()
	putTower(t, elsewhere, "blob", graph.New().Const(tensor.New(530, 8)))
	goldentest.NoError(t, os.Symlink(filepath.Join(elsewhere, "blob"), filepath.Join(dir, "tokens.onnx")))
	recorded := filepath.Join(t.TempDir(), "recorded")
	goldentest.NoError(t, exported.WriteRecorded(openBundle(t, dir), recorded, false))
	openBundle(t, recorded)
}

// External data that only the body of a function names is in the model if the function is called.
func TestFunctionsOfExportedTowersStayInTheirFolder(t *testing.T) {
	dir := copyTower(t, "hf-half", "{}")
	secret := &onnx.TensorProto{DataType: int32(graph.Float), Dims: []int64{2}}
	onnx.SetExternal(secret, onnx.External{File: "../secret", Length: 8})
	changed(t, dir, "image.onnx", func(m *onnx.ModelProto) {
		m.Functions = append(m.Functions, &onnx.FunctionProto{Name: "f", Domain: "own", Output: []string{"y"},
			Node: []*onnx.NodeProto{{OpType: "Constant", Output: []string{"y"}, Attribute: []*onnx.AttributeProto{
				{Name: "value", Type: onnx.AttributeProto_TENSOR, T: secret}}}}})
	})
	filetest.Write(t, filepath.Join(filepath.Dir(dir), "secret"), strings.Repeat("x", 8))
	goldentest.WantErrorOf(t, "a function", useTower(t, dir),
		`"../secret", which is not a path inside the folder of the model`)
	_, err := bundle.Inspect(filepath.Join(dir, "image.onnx"))
	goldentest.WantErrorOf(t, "the file", err, `"../secret", which is not a path inside the folder of the model`)
}

// FuzzExportedTowers sets a field of one of the files of exported towers to any number or name: opening them and
// building their graphs must either work or return an error of one line, in limited memory.
func FuzzExportedTowers(f *testing.F) {
	towers := []string{"openai-fixed-whole-29-dynamo", "hf-half", "openai-emb-cut-113-torchscript"}
	for i, n := range onnxtest.Numbers {
		for tower := range towers {
			f.Add(uint8(tower), i%2 == 0, uint16(37*i), n, "../x")
			f.Add(uint8(tower), i%2 == 1, uint16(101*i), n+1, "y")
		}
	}
	dirs := make([]string, len(towers))
	for i, name := range towers {
		dirs[i] = filepath.Join(f.TempDir(), name)
		filetest.Copy(f, dirs[i], filepath.Join("testdata", name))
	}
	f.Fuzz(func(t *testing.T, tower uint8, image bool, field uint16, number int64, name string) {
		dir, file := dirs[int(tower)%len(dirs)], "text.onnx"
		if image {
			file = "image.onnx"
		}
		good := filetest.Read(t, filepath.Join("testdata", filepath.Base(dir), file))
		m := &onnx.ModelProto{}
		goldentest.NoError(t, proto.Unmarshal(good, m))
		list := onnxtest.Fields(m)
		if at := list[int(field)%len(list)]; at.Text {
			at.Name(name)
		} else {
			at.Number(number)
		}
		b, err := proto.Marshal(m)
		if err != nil {
			return
		}
		filetest.Write(t, filepath.Join(dir, file), b)
		if err := useTower(t, dir); err != nil && strings.ContainsAny(err.Error(), "\n\r") {
			t.Errorf("not one line: %q", err)
		}
		filetest.Write(t, filepath.Join(dir, file), good)
	})
}

// Untrusted folders give an error of one line, or the same bundle as without the odd part: two candidates, links in
// circles and out of the folder, missing weights or weights of another size, numbers of any size in the files beside
// the graphs.
func TestHostileFolders(t *testing.T) {
	write := func(name, text string) func(dir string) error {
		return func(dir string) error { return os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600) }
	}
	link := func(to, name string) func(dir string) error {
		return func(dir string) error {
			os.Remove(filepath.Join(dir, name))
			return os.Symlink(to, filepath.Join(dir, name))
		}
	}
	remove := func(name string) func(dir string) error {
		return func(dir string) error { return os.Remove(filepath.Join(dir, name)) }
	}
	huge := "1" + strings.Repeat("0", 400)
	for _, c := range []struct {
		what, folder string
		change       func(dir string) error
		want         string // the error; "" if the folder is read
	}{
		{"no folder at all", "siglip", os.RemoveAll, "no such folder"},
		{"nothing in it", "siglip", func(dir string) error {
			if err := os.RemoveAll(dir); err != nil {
				return err
			}
			return os.Mkdir(dir, 0o700)
		}, "is not a bundle"},
		{"a circle of links to itself", "siglip", link(".", "onnx/again"), ""},
		{"a link to the folder above", "siglip", link("..", "onnx/up"), ""},
		{"a tower that links to itself", "siglip", link("vision_model.onnx", "onnx/vision_model.onnx"),
			"there is no image tower vision_model.onnx"},
		{"two towers that link to each other", "siglip", func(dir string) error {
			if err := link("text_model.onnx", "onnx/vision_model.onnx")(dir); err != nil {
				return err
			}
			return link("vision_model.onnx", "onnx/text_model.onnx")(dir)
		}, "is not a bundle"},
		{"a folder in a tower's place", "siglip", func(dir string) error {
			if err := os.Remove(filepath.Join(dir, "onnx/vision_model.onnx")); err != nil {
				return err
			}
			return os.Mkdir(filepath.Join(dir, "onnx/vision_model.onnx"), 0o700)
		}, "there is no image tower vision_model.onnx"},
		{"an empty tower", "siglip", write("onnx/vision_model.onnx", ""), "vision_model.onnx"},
		{"a tower that is text", "siglip", write("onnx/vision_model.onnx", "<html>not found</html>"),
			"vision_model.onnx"},
		{"a tower in two folders", "siglip", func(dir string) error {
			return os.CopyFS(filepath.Join(dir, "b"), os.DirFS(filepath.Join(dir, "onnx")))
		}, ""},
		{"a tower beside its folder", "siglip", func(dir string) error {
			return os.CopyFS(dir, os.DirFS(filepath.Join(dir, "onnx")))
		}, "two files could be the image tower, "},
		{"weights that are absent", "chinese-clip", remove("vit-b-16.txt.fp32.onnx.extra_file"),
			"its weights file vit-b-16.txt.fp32.onnx.extra_file is missing"},
		{"weights that end early", "chinese-clip", func(dir string) error {
			return os.Truncate(filepath.Join(dir, "vit-b-16.img.fp32.onnx.extra_file"), 100)
		}, "cut short"},
		{"weights elsewhere", "chinese-clip", func(dir string) error {
			name := "vit-b-16.img.fp32.onnx.extra_file"
			outside := filepath.Join(filepath.Dir(dir), "weights")
			if err := os.Rename(filepath.Join(dir, name), outside); err != nil {
				return err
			}
			return os.Symlink(outside, filepath.Join(dir, name))
		}, "vit-b-16.img.fp32.onnx.extra_file"},
		{"weights that are a circle", "chinese-clip", link("vit-b-16.img.fp32.onnx.extra_file",
			"vit-b-16.img.fp32.onnx.extra_file"), "vit-b-16.img.fp32.onnx.extra_file"},
		{"no vocabulary", "chinese-clip", remove("vocab.txt"), "tokenizer.json"},
		{"another vocabulary", "chinese-clip", write("vocab.txt", "[CLS]\n[SEP]\n[PAD]\n[UNK]\n[MASK]\n"+
			strings.Repeat("x\n", 2000)), "they do not belong together"},
		{"numbers of 400 digits", "siglip", write("config.json", `{"vision_config": {"image_size": `+huge+
			`}, "text_config": {"max_position_embeddings": `+huge+`}}`), ""},
		{"negative numbers", "siglip", write("config.json", `{"vision_config": {"image_size": -3}}`), ""},
		{"a preprocessing of 400 digits", "siglip", write("preprocessor_config.json", `{"size": {"height": `+huge+
			`, "width": `+huge+`}}`), "preprocessor_config.json"},
		{"a preprocessing of 2^60 pixels", "siglip", write("preprocessor_config.json",
			`{"size": {"height": 1152921504606846976, "width": 1152921504606846976}}`), "need 1 to 4096"},
		{"a preprocessing of another size", "siglip", write("preprocessor_config.json",
			`{"size": {"height": 224, "width": 224}}`), "images of 224 pixels for a tower that takes 14"},
		{"a preprocessing that is a list", "siglip", write("preprocessor_config.json", `[1]`),
			"preprocessor_config.json"},
		{"an infinite scale", "siglip", write("bundle.json", `{"logit_scale": 1e999}`), "bundle.json"},
		{"a context of 2^40", "siglip", write("bundle.json", `{"context_length": 1099511627776}`), "must be from 1 to"},
		{"a file outside", "siglip", write("bundle.json", `{"image": {"file": "/etc/passwd"}}`),
			"not the path of a file inside the bundle"},
		{"a checkpoint that is none", "siglip", func(dir string) error {
			if err := write("model.safetensors", strings.Repeat("\xff", 64))(dir); err != nil {
				return err
			}
			return write("config.json", `{"model_type": "siglip"}`)(dir)
		}, ""},
		{"a whole export that is none", "siglip", write("onnx/model.onnx", "no"), ""},
	} {
		dir := filetest.Copy(t, filepath.Join(t.TempDir(), "tower"), filepath.Join("testdata", c.folder))
		goldentest.NoError(t, c.change(dir))
		switch err := useTower(t, dir); {
		case c.want != "":
			goldentest.WantErrorOf(t, c.what, err, c.want)
		case err != nil:
			t.Errorf("%s: %v", c.what, err)
		}
	}
}

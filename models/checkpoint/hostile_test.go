package checkpoint

import (
	"archive/zip"
	"bytes"
	"encoding/binary"
	"fmt"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/nlpodyssey/gopickle/types"

	"promptfed/runtime/filetest"
	"promptfed/runtime/goldentest"
)

// zipOf builds an archive, as torch.save would, from named members.
func zipOf(t testing.TB, method uint16, members ...string) []byte {
	t.Helper()
	var b bytes.Buffer
	z := zip.NewWriter(&b)
	for i := 0; i < len(members); i += 2 {
		w, err := z.CreateHeader(&zip.FileHeader{Name: "a/" + members[i], Method: method})
		goldentest.NoError(t, err)
		w.Write([]byte(members[i+1]))
	}
	goldentest.NoError(t, z.Close())
	return b.Bytes()
}

func str(s string) string {
	return "X" + string(binary.LittleEndian.AppendUint32(nil, uint32(len(s)))) + s
}

func num(n int32) string { return "J" + string(binary.LittleEndian.AppendUint32(nil, uint32(n))) }

func tuple(items ...any) string {
	s := "("
	for _, i := range items {
		s += num(int32(i.(int)))
	}
	return s + "t"
}

// tensorOf returns the pickle of {"w": tensor} over a storage of count floats.
func tensorOf(count int32, offset int32, shape, stride string) string {
	pid := "(" + str("storage") + "ctorch\nFloatStorage\n" + str("0") + str("cpu") + num(count) + "tQ"
	return "\x80\x02}" + str("w") + "ctorch._utils\n_rebuild_tensor_v2\n(" + pid + num(offset) + shape + stride +
		"\x89ccollections\nOrderedDict\n)RtRs."
}

func opening(t testing.TB, data []byte) error {
	t.Helper()
	path := filepath.Join(t.TempDir(), "x.pt")
	filetest.Write(t, path, data)
	c, err := Open(path, Options{})
	if err != nil {
		return err
	}
	defer c.Close()
	for _, n := range c.Names() {
		h, _ := c.Tensor(n)
		if _, err := h.Load(); err != nil {
			return err
		}
	}
	return nil
}

func TestHostilePickles(t *testing.T) {
	sixteen := strings.Repeat("\x00", 16)
	for _, c := range []struct{ name, pickle, want string }{
		{"os.system", "\x80\x02cos\nsystem\n" + str("true") + "\x85R.", `asks for the global "os.system"`},
		{"os.system, protocol 4", "\x80\x04" + str("os") + str("system") + "\x93.", `asks for the global "os.system"`},
		{"old instance", "(" + str("ls") + "iposix\nsystem\n.", `asks for the global "posix.system"`},
		{"eval", "\x80\x02cbuiltins\neval\n.", `asks for the global "builtins.eval"`},
		{"a pickled model", "\x80\x02cclip.model\nCLIP\n)\x81.", `asks for the global "clip.model.CLIP"`},
		{"classes outside TorchScript", "\x80\x02c__torch__.m\nCLIP\n)\x81.", `asks for the global "__torch__.m.CLIP"`},
		{"extension", "\x80\x02\x82\x01.", "extension"},
		{"unknown opcode", "\x80\x02\xff.", "unknown pickle opcode 0xff"},
		{"no STOP", "\x80\x02}", "ends before its STOP"},
		{"pop of nothing", "\x80\x020.", "meta stack is empty"},
		{"odd dict", "\x80\x02(K\x01d.", "malformed"},
		{"giant string", "\x80\x02X\xff\xff\xff\xff", "longer than"},
		{"giant bytes", "\x80\x04\x8e\xff\xff\xff\xff\xff\xff\xff\x7f", "longer than"},
		{"giant frame", "\x80\x04\x95\xff\xff\xff\xff\xff\xff\x00\x00.", "longer than"},
		{"long integer", "\x80\x02\x8b\x01\x00\x00\x00\x00.", "unknown pickle opcode 0x8b"},
		{"deep", "\x80\x02" + strings.Repeat("(", 1<<20), "nests more than"},
		{"many", "\x80\x02(" + strings.Repeat("}", 1<<20) + "l.", "more than 524288 objects"},
		{"endless line", "\x80\x02c" + strings.Repeat("a", 1<<20), "line of more than"},
		{"a number", "\x80\x02K\x01.", "want a state dict"},
		{"a dict of numbers", "\x80\x02}" + str("a") + "K\x01s.", "no tensors by name"},
		{"itself", "\x80\x02}q\x00" + str("state_dict") + "h\x00s.", "no tensors by name"},
		{"shape beyond storage", tensorOf(4, 0, tuple(5), tuple(1)), "runs past its storage of 4"},
		{"offset beyond storage", tensorOf(4, 3, tuple(2), tuple(1)), "runs past its storage of 4"},
		{"stride beyond storage", tensorOf(4, 0, tuple(2, 2), tuple(3, 1)), "runs past its storage of 4"},
		{"negative stride", tensorOf(4, 3, tuple(2), tuple(-1)), "strides [-1]"},
		{"negative shape", tensorOf(4, 0, tuple(-2), tuple(1)), "shape [-2]"},
		{"negative offset", tensorOf(4, -1, tuple(2), tuple(1)), "offset -1"},
		{"overflow", tensorOf(4, 0, tuple(1<<31-1, 1<<31-1, 1<<31-1), tuple(0, 0, 0)), "overflows"},
		{"repeats", tensorOf(4, 0, tuple(1<<15, 1<<15), tuple(0, 0)), "repeats a storage"},
		{"strides missing", tensorOf(4, 0, tuple(2, 2), tuple(1)), "strides [1]"},
		{"shape is a number", tensorOf(4, 0, num(4), tuple(1)), "shape"},
		{"shape is a word", tensorOf(4, 0, "("+str("a")+"t", tuple(1)), "a tensor has offset 0, shape [] and"},
		{"storage larger than member", tensorOf(5, 0, tuple(5), tuple(1)), "holds 16 bytes, but 20"},
		{"storage of negative size", tensorOf(-5, 0, tuple(5), tuple(1)), "unsupported type or size"},
		{"fine", tensorOf(4, 0, tuple(2, 2), tuple(1, 2)), ""},
	} {
		for _, method := range []uint16{zip.Store, zip.Deflate} {
			err := opening(t, zipOf(t, method, "data.pkl", c.pickle, "data/0", sixteen))
			if c.want == "" && c.name == "fine" && err != nil {
				t.Errorf("%s: %v", c.name, err)
			}
			if c.name != "fine" && (err == nil || !strings.Contains(err.Error(), c.want) ||
				strings.Contains(err.Error(), "\n")) {
				t.Errorf("%s: error %v, want one line with %q", c.name, err, c.want)
			}
		}
	}
	// Of four elements, a view of an old file has two from the last one on.
	_, err := (&legacy{types: map[string]*storage{}}).persistent(&types.Tuple{"storage", storageType("F32"), "0", "cpu",
		4, &types.Tuple{"view", 3, 2}})
	goldentest.WantError(t, err, `a view of storage "0" lies outside its 4 elements`)
}

func TestHostileArchives(t *testing.T) {
	four := tensorOf(4, 0, tuple(4), tuple(1))
	bomb := tensorOf(16<<20, 0, tuple(16<<20), tuple(1))
	script := "\x80\x02c__torch__.m\nM\n)\x81}(" + str("self") + "h\x00ub."
	for _, c := range []struct {
		name string
		zip  []byte
		want string
	}{
		{"no pickle", zipOf(t, zip.Store, "x", "y"), "0 data.pkl"},
		{"two pickles", zipOf(t, zip.Store, "data.pkl", four, "../data.pkl", four), "data.pkl"},
		{"twice", zipOf(t, zip.Store, "data.pkl", four, "data.pkl", four), "twice"},
		{"no storage", zipOf(t, zip.Store, "data.pkl", four), `storage "0" is missing`},
		{"big-endian", zipOf(t, zip.Store, "data.pkl", four, "byteorder", "big", "data/0", strings.Repeat("x", 16)),
			"big-endian"},
		{"bomb of a storage", zipOf(t, zip.Deflate, "data.pkl", bomb, "data/0", strings.Repeat("\x00", 64<<20)),
			"as no weights do"},
		{"bomb of a pickle", zipOf(t, zip.Deflate, "data.pkl", strings.Repeat("0", 64<<20)), "longer than"},
		{"modules in a ring", zipOf(t, zip.Store, "data.pkl", "\x80\x02c__torch__.m\nM\n)\x81q\x00}("+str("self")+
			"h\x00ub.", "constants.pkl", "\x80\x02)."), "nest more than 64"},
		{"modules doubled", zipOf(t, zip.Store, "data.pkl", doubled(40), "constants.pkl", "\x80\x02)."),
			"more than 1048576 attributes"},
		{"script with a bad state", zipOf(t, zip.Store, "data.pkl", "\x80\x02c__torch__.m\nM\n)\x81]b.",
			"constants.pkl", ""), "want a dict"},
		{"script of nothing", zipOf(t, zip.Store, "data.pkl", script, "constants.pkl", ""), "no tensors"},
	} {
		before := allocated()
		err := opening(t, c.zip)
		if err == nil || !strings.Contains(err.Error(), c.want) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: error %v, want one line with %q", c.name, err, c.want)
		}
		if used := allocated() - before; used > 256<<20 {
			t.Errorf("%s: %d MB allocated", c.name, used>>20)
		}
	}
}

// doubled nests modules, each of which contains the next one twice: 2^depth paths in a few hundred bytes.
func doubled(depth int) string {
	s := "\x80\x02c__torch__.m\nM\n)\x81q\x00"
	for i := range depth {
		s += "0c__torch__.m\nM\n)\x81}(" + str("a") + fmt.Sprintf("h%c", i) + str("b") + fmt.Sprintf("h%c", i) + "ub" +
			fmt.Sprintf("q%c", i+1)
	}
	return s + "."
}

func allocated() uint64 {
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.TotalAlloc
}

func seeds(f *testing.F) (archives [][]byte) {
	for _, name := range []string{"tricky.pt", "legacy.pt", "huggingface/model.safetensors"} {
		b := filetest.Read(f, filepath.Join("testdata", name))
		archives = append(archives, b)
	}
	archives = append(archives, zipOf(f, zip.Deflate, "data.pkl", tensorOf(4, 0, tuple(2, 2), tuple(1, 2)), "data/0",
		strings.Repeat("x", 16)), zipOf(f, zip.Store, "data.pkl", doubled(3), "constants.pkl", ""))
	for _, file := range liars(f) {
		archives = append(archives, file)
	}
	for _, b := range archives[:3] {
		archives = append(archives, b[:len(b)-7], b[:len(b)/2])
	}
	return archives
}

// A value in place of a number, a class or a key in a pickle is quoted in one line, whatever its form.
func TestErrorsQuoteInOneLine(t *testing.T) {
	const magic = "\x80\x02\x8a\nl\xfc\x9cF\xf9 j\xa8P\x19."
	long := strings.Repeat("\x01", 3000)
	stored := "(" + str("storage") + "ctorch\nFloatStorage\n" + str("0") + str("cpu")
	for _, c := range []struct{ content, want string }{
		{magic + "\x80\x02}" + str("l\r\re_endian") + "\x88s.", "torch.save protocol &[{l; e_endian true}], want 1001"},
		// The first description would let a tensor take four gigabytes, the second, of a view, fits the file.
		{magic + "\x80\x02M\xe9\x03." + "\x80\x02}." + "\x80\x02(" + stored + num(1<<30) + "tQ" + stored + num(1) +
			"(" + str("v") + num(0) + num(1) + "ttQt.", `storage "0" is described in two ways`},
		{magic + "\x80\x02M\xe9\x03." + "\x80\x02}." + "\x80\x02c" + long + "\nx\n.", "the global"},
		{magic + "\x80\x02M\xe9\x03." + "\x80\x02}." + "\x80\x02(" + str("storage") + "ctorch\nFloatStorage\n" +
			str(long) + str("cpu") + num(1) + "tQ.",
			"a storage has a key of 3000 bytes, the limit is 512"},
		{magic + "\x80\x02M\xe9\x03." + "\x80\x02}." + tensorOf(4, 0, "("+strings.Repeat(num(1<<30), 500)+"t", tuple()),
			"a tensor has offset 0, shape [1073741824"},
	} {
		err := opening(t, []byte(c.content))
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Fatalf("error %v, want %q", err, c.want)
		}
		oneLined(t, err)
	}
}

// FuzzWeights opens any bytes as a weights file, loads its tensors and determines its architecture.
func FuzzWeights(f *testing.F) {
	for _, b := range seeds(f) {
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		c := &Checkpoint{format: StateDict, path: "x"}
		var err error
		if c.handles, err = c.read("x", bytes.NewReader(b), int64(len(b))); err != nil {
			oneLined(t, err)
			return
		}
		for _, n := range c.Names() {
			h, _ := c.Tensor(n)
			if h.File != "" && (h.Offset < 0 || h.Offset+h.Length > int64(len(b))) {
				if _, err := h.Load(); err == nil {
					t.Fatalf("%q lies at %d..%d of %d bytes", n, h.Offset, h.Offset+h.Length, len(b))
				}
			}
			if _, err := h.Load(); err != nil {
				oneLined(t, err)
			}
		}
		if _, err := Detect(c); err != nil {
			oneLined(t, err)
		}
	})
}

// FuzzPickle runs any bytes as data.pkl, with storages of 16 bytes under every key.
func FuzzPickle(f *testing.F) {
	f.Add([]byte(tensorOf(4, 0, tuple(2, 2), tuple(1, 2))))
	f.Add([]byte(doubled(3)))
	f.Add([]byte("\x80\x02cos\nsystem\n" + str("x") + "\x85R."))
	f.Add([]byte("\x80\x04\x95\x02\x00\x00\x00\x00\x00\x00\x00}."))
	f.Add([]byte("(" + str("ls") + "iposix\nsystem\n."))
	f.Add([]byte("\x80\x04" + str("os") + str("system") + "\x93" + str("x") + "\x85R."))
	f.Add([]byte("\x80\x02ctorch._utils\n_rebuild_parameter\n(ctorch._utils\n_rebuild_parameter\n(K\x01tRtR."))
	f.Add([]byte("\x80\x02ctorch._tensor\n_rebuild_from_type_v2\n(ctorch._tensor\n_rebuild_from_type_v2\nNN)tR."))
	f.Add([]byte("\x80\x02]q\x00h\x00ah\x00}q\x01h\x01h\x00s\x86."))
	f.Add([]byte("\x80\x02(" + strings.Repeat("(", 300) + "t."))
	f.Add([]byte("\x80\x02}(" + str("w") + "K\x01" + str("w") + "K\x02u."))
	f.Fuzz(func(t *testing.T, b []byte) {
		v, _, err := readPickle(bytes.NewReader(b), func(id any) (any, error) { return parseStorage(id) }, true)
		if err != nil {
			oneLined(t, err)
			return
		}
		if m, ok := v.(*module); ok {
			flattenModule(m)
		} else {
			flattenDict(v)
		}
	})
}

// FuzzConfig reads any bytes as the configuration of a tiny CLIP.
func FuzzConfig(f *testing.F) {
	for _, name := range []string{"huggingface/config.json", "openclip/open_clip_config.json",
		"sharded/model.safetensors.index.json"} {
		b := filetest.Read(f, filepath.Join("testdata", name))
		f.Add(b)
	}
	f.Add([]byte(`{"model_type":"clip","vision_config":{"image_size":[[],[]],"num_attention_heads":0}}`))
	f.Add([]byte(`{"model_type":"clip_resnet","text_config":{"num_attention_heads":8},` +
		`"vision_config":{"image_size":224,"layers":[3,4,6,3],"depths":[[]]}}`))
	f.Add([]byte(`{"model_cfg":{"vision_cfg":{"layers":[3,4,6,3],"width":64,"head_width":0,` +
		`"image_size":224},"text_cfg":{}}}`))
	hf, oc := open(f, "testdata/huggingface", Options{}), open(f, "testdata/openclip", Options{})
	rn := published(f)["RN50"]
	f.Fuzz(func(t *testing.T, b []byte) {
		cfg, err := parseJSON(b)
		if err != nil {
			oneLined(t, err)
			return
		}
		for _, c := range []*Checkpoint{hf, oc, shapesOnly(HuggingFace, rn, nil), shapesOnly(OpenCLIP, rn, nil)} {
			d := *c
			d.config = cfg
			a, err := Detect(&d)
			if err != nil {
				oneLined(t, err)
			} else if a.Text.Heads < 1 || a.Text.Width%a.Text.Heads != 0 || a.Vision.Heads < 1 ||
				a.Vision.Width%a.Vision.Heads != 0 {
				t.Fatalf("%+v", a)
			}
		}
	})
}

func oneLined(t *testing.T, err error) {
	t.Helper()
	if s := err.Error(); strings.ContainsAny(s, "\n\r") || len(s) > 4000 {
		t.Fatalf("not one line: %q", s)
	}
}

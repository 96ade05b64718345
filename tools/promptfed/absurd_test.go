//go:build unix

package main

import (
	"context"
	"encoding/binary"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime/debug"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
	"unicode"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"promptfed/runtime/onnx"
)

// What stands in place of a number or a name of a good model, one at a time.
var (
	absurdNumbers = []int64{0, -1, 1 << 31, 1 << 35, 1 << 62}
	absurdNames   = []string{"", strings.Repeat("long", 5000), "../../etc/passwd", "a\nb\x00\x1b[31m"}
)

// variant is a good model with one field replaced.
type variant struct {
	what  string
	apply func() (undo func())
}

// variants lists what becomes of a model by every absurd value in every field: sizes, attributes, element types,
// versions, names, and the integers that its constants hold.
func variants(m protoreflect.Message, path string) (out []variant) {
	add := func(what string, v, old protoreflect.Value, set func(protoreflect.Value)) {
		if v.Interface() != old.Interface() {
			out = append(out, variant{fmt.Sprintf("%s = %.20q", what, fmt.Sprint(v)), func() func() {
				set(v)
				return func() { set(old) }
			}})
		}
	}
	field := func(f protoreflect.FieldDescriptor, what string, old protoreflect.Value, set func(protoreflect.Value)) {
		switch f.Kind() {
		case protoreflect.Int64Kind:
			for _, n := range absurdNumbers {
				add(what, protoreflect.ValueOfInt64(n), old, set)
			}
		case protoreflect.Int32Kind:
			for _, n := range []int32{0, -1, 8, 99, 1<<31 - 1} {
				add(what, protoreflect.ValueOfInt32(n), old, set)
			}
		case protoreflect.EnumKind:
			for _, n := range []protoreflect.EnumNumber{0, -1, 3, 99} {
				add(what, protoreflect.ValueOfEnum(n), old, set)
			}
		case protoreflect.StringKind:
			for _, s := range absurdNames {
				add(what, protoreflect.ValueOfString(s), old, set)
			}
		}
	}
	fields := m.Descriptor().Fields()
	for i := range fields.Len() {
		f := fields.Get(i)
		if !m.Has(f) {
			continue
		}
		v := m.Get(f)
		what := path + "." + string(f.Name())
		switch {
		case f.IsList() && f.Message() != nil:
			for i := range v.List().Len() {
				out = append(out, variants(v.List().Get(i).Message(), fmt.Sprintf("%s[%d]", what, i))...)
			}
		case f.IsList():
			for i := range min(8, v.List().Len()) {
				field(f, fmt.Sprintf("%s[%d]", what, i), v.List().Get(i), func(x protoreflect.Value) {
					m.Mutable(f).List().Set(i, x)
				})
			}
		case f.Message() != nil:
			out = append(out, variants(v.Message(), what)...)
		default:
			field(f, what, v, func(x protoreflect.Value) { m.Set(f, x) })
		}
	}
	if t, ok := m.Interface().(*onnx.TensorProto); ok && t.DataType == int32(onnx.TensorProto_INT64) &&
		len(t.RawData) <= 64 {
		for i := 0; i+8 <= len(t.RawData); i += 8 {
			old := int64(binary.LittleEndian.Uint64(t.RawData[i:]))
			for _, n := range absurdNumbers {
				add(fmt.Sprintf("%s.raw_data[%d]", path, i), protoreflect.ValueOfInt64(n), protoreflect.ValueOfInt64(old),
					func(x protoreflect.Value) { binary.LittleEndian.PutUint64(t.RawData[i:], uint64(x.Int())) })
			}
		}
	}
	return out
}

// absurdMemory is the address space that a command may have, in bytes: ten times what the good model needs, and less
// than half of what the absurd ones ask for.
const absurdMemory = 4 << 30

// Of a good model with one absurd value no command makes more than one line: no trace of Go, no crash in ONNX Runtime,
// no memory that the file asks for. The commands run in a process of their own whose address space is limited; it
// reports each file before it reads it. PROMPTFED_ABSURD_STEP=1 takes all files, in an hour; by default it is
// one in 97.
func TestAbsurdModels(t *testing.T) {
	if dir := os.Getenv("PROMPTFED_ABSURD"); dir != "" {
		absurdProcess(t, dir)
		return
	}
	for _, name := range []string{"openai-fixed-whole-29-dynamo", "hf-half"} {
		for _, file := range []string{"image.onnx", "text.onnx"} {
			t.Run(name+"/"+file, func(t *testing.T) {
				dir := filepath.Join(t.TempDir(), "tower")
				if err := os.CopyFS(dir, os.DirFS(filepath.Join("../../models/bundle/testdata/foreign", name))); err != nil {
					t.Fatal(err)
				}
				for from := "0"; from != ""; {
					c := exec.Command(os.Args[0], "-test.run=^TestAbsurdModels$", "-test.timeout=2h")
					c.Env = append(os.Environ(), "PROMPTFED_ABSURD="+dir, "PROMPTFED_ABSURD_FILE="+file,
						"PROMPTFED_ABSURD_FROM="+from)
					text, err := c.CombinedOutput()
					from = ""
					if err != nil {
						last, _ := os.ReadFile(filepath.Join(dir, "last"))
						number, what, _ := strings.Cut(string(last), " ")
						t.Errorf("%s: %v\n%.3000s", what, err, text)
						if n, err := strconv.Atoi(number); err == nil && os.Getenv("PROMPTFED_ABSURD_STEP") != "" {
							from = strconv.Itoa(n + 1)
						}
					}
				}
			})
		}
	}
}

// absurdProcess runs the commands on the variants of one file of a folder.
func absurdProcess(t *testing.T, dir string) {
	limit := syscall.Rlimit{Cur: absurdMemory, Max: absurdMemory}
	if err := syscall.Setrlimit(syscall.RLIMIT_AS, &limit); err != nil {
		t.Skip(err)
	}
	path := filepath.Join(dir, os.Getenv("PROMPTFED_ABSURD_FILE"))
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	m := &onnx.ModelProto{}
	if err := proto.Unmarshal(b, m); err != nil {
		t.Fatal(err)
	}
	from, _ := strconv.Atoi(os.Getenv("PROMPTFED_ABSURD_FROM"))
	step, err := strconv.Atoi(os.Getenv("PROMPTFED_ABSURD_STEP"))
	if err != nil {
		step = 97
	}
	accepted, began := 0, time.Now()
	list := variants(m.ProtoReflect(), "model")
	for i := from; i < len(list); i += step {
		undo := list[i].apply()
		b, err := proto.Marshal(m)
		undo()
		if err != nil { // a name that is no UTF-8
			t.Fatal(err)
		}
		for p, data := range map[string][]byte{path: b, filepath.Join(dir, "last"): fmt.Appendf(nil, "%d %s", i,
			list[i].what)} {
			if err := os.WriteFile(p, data, 0o644); err != nil {
				t.Fatal(err)
			}
		}
		for _, args := range [][]string{{"inspect", path}, {"inspect", dir}, {"check", dir}, {"check", path}} {
			began := time.Now()
			code, text := quiet(t, dir, args)
			if took := time.Since(began); took > 20*time.Second {
				t.Errorf("%s: %v took %v", list[i].what, args, took)
			}
			if os.Getenv("PROMPTFED_ABSURD_SAY") != "" {
				t.Logf("%s: %v: %d %.300q", list[i].what, args, code, text)
			}
			lines := strings.Count(text, "\n")
			if code != done && lines != 1 || code == done && lines != 0 || len(text) > 16<<10 ||
				strings.ContainsFunc(strings.TrimSuffix(text, "\n"), unicode.IsControl) {
				t.Errorf("%s: %v ends with %d and says %.300q", list[i].what, args, code, text)
			}
			if code == done && args[0] == "check" {
				accepted++
			}
		}
		if i%50 == 0 {
			debug.FreeOSMemory()
		}
	}
	t.Logf("%d of %d files, %d commands accepted one, %v", (len(list)-from+step-1)/step, len(list), accepted,
		time.Since(began))
}

// quiet runs a command in this process and gives what it wrote to its standard error.
func quiet(t *testing.T, dir string, args []string) (code int, text string) {
	t.Helper()
	errs, err := os.Create(filepath.Join(dir, "stderr"))
	if err != nil {
		t.Fatal(err)
	}
	defer errs.Close()
	null, err := os.OpenFile(os.DevNull, os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer null.Close()
	out, was := os.Stdout, os.Stderr
	os.Stdout, os.Stderr = null, errs
	defer func() { os.Stdout, os.Stderr = out, was }()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	code = execute(ctx, args)
	b, err := os.ReadFile(errs.Name())
	if err != nil {
		t.Fatal(err)
	}
	return code, string(b)
}

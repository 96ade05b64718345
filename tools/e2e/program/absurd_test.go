//go:build unix

package program

import (
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

	"promptfed/runtime/busytest"
	"promptfed/runtime/filetest"
	"promptfed/runtime/goldentest"
	"promptfed/runtime/onnx"
	"promptfed/runtime/onnx/onnxtest"
	"promptfed/tools/promptfed/command"
)

// variant is a good model with one changed field.
type variant struct {
	what  string
	apply func() (undo func())
}

// variants returns a model with every extreme value in every field.
func variants(m *onnx.ModelProto) (out []variant) {
	for _, f := range onnxtest.Fields(m) {
		if f.Text {
			for _, s := range onnxtest.Names {
				out = append(out, variant{fmt.Sprintf("%s = %.20q", f.Path, s), func() func() { return f.Name(s) }})
			}
			continue
		}
		for _, n := range onnxtest.Numbers {
			out = append(out, variant{fmt.Sprintf("%s = %d", f.Path, n), func() func() { return f.Number(n) }})
		}
	}
	return out
}

// absurdMemory is the address space of a command, in bytes: ten times the need of the good model, and less than half of
// what the extreme values request.
const absurdMemory = 4 << 30

const absurdRun = `
name: absurd
method: promptfl
options: {tokens: 4}
backbones: [none]
data: {set: synthetic, shots: 2,
  generator: {classes: [circle, square, star], domains: [cartoon], train: 4, test: 4, size: 16}}
partition: {kind: iid, clients: 2}
train: {rounds: 1, lr: 0.01, epochs: 1, batch: 4}
runtime: {cache: %s/cache}
`

// For a good model with one extreme value, each command prints at most one line: no stack trace, no crash in ONNX
// Runtime, no memory of the size in the file. The commands run in a separate process with a limited address space,
// which records each file before it reads the file. PROMPTFED_TEST_ABSURD_STEP=1 tests all files, in an hour; the
// default is every 593rd.
func TestAbsurdModels(t *testing.T) {
	t.Parallel()
	if dir := os.Getenv("PROMPTFED_TEST_ABSURD"); dir != "" {
		absurdProcess(t, dir)
		return
	}
	for _, name := range []string{"openai-fixed-whole-29-dynamo", "hf-half"} {
		for _, file := range []string{"image.onnx", "text.onnx"} {
			t.Run(name+"/"+file, func(t *testing.T) {
				dir := filepath.Join(t.TempDir(), "tower")
				if err := os.CopyFS(dir, os.DirFS(filepath.Join("../../../models/bundle/exported/testdata",
					name))); err != nil {
					t.Fatal(err)
				}
				for from := "0"; from != ""; {
					c := exec.Command(os.Args[0], "-test.run=^TestAbsurdModels$", "-test.timeout=2h")
					c.Env = append(os.Environ(), "GOGC=100", "PROMPTFED_TEST_ABSURD="+dir,
						"PROMPTFED_TEST_ABSURD_FILE="+file, "PROMPTFED_TEST_ABSURD_FROM="+from)
					text, err := c.CombinedOutput()
					from = ""
					if err != nil {
						last, _ := os.ReadFile(filepath.Join(dir, "last"))
						number, what, _ := strings.Cut(string(last), " ")
						t.Errorf("%s: %v\n%.3000s", what, err, text)
						if n, err := strconv.Atoi(number); err == nil && os.Getenv("PROMPTFED_TEST_ABSURD_STEP") != "" {
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
	path := filepath.Join(dir, os.Getenv("PROMPTFED_TEST_ABSURD_FILE"))
	m := &onnx.ModelProto{}
	goldentest.NoError(t, proto.Unmarshal(read(t, path), m))
	from, _ := strconv.Atoi(os.Getenv("PROMPTFED_TEST_ABSURD_FROM"))
	step, err := strconv.Atoi(os.Getenv("PROMPTFED_TEST_ABSURD_STEP"))
	if err != nil {
		step = 593
	}
	config := filetest.Write(t, filepath.Join(dir, "run.yaml"), fmt.Appendf(nil, absurdRun, dir))
	accepted, began := 0, time.Now()
	list := variants(m)
	for i := from; i < len(list); i += step {
		undo := list[i].apply()
		b, err := proto.Marshal(m)
		undo()
		if err != nil { // a name that is not UTF-8
			t.Fatal(err)
		}
		for p, data := range map[string][]byte{path: b, filepath.Join(dir, "last"): fmt.Appendf(nil, "%d %s", i,
			list[i].what)} {
			filetest.Write(t, p, data)
		}
		for _, args := range [][]string{{"inspect", path}, {"inspect", dir}, {"check", path}, {"check", dir},
			{"run", config, "--set", "backbones=" + dir, "--out", filepath.Join(dir, "out", strconv.Itoa(i))}} {
			if args[0] == "run" && accepted%4 != 1 { // it takes longer than the others together
				continue
			}
			code, text := quiet(t, dir, args)
			last := strings.TrimSuffix(text, "\n")
			if i := strings.LastIndexByte(last, '\n'); args[0] == "run" && i >= 0 { // warnings come before
				last = last[i+1:]
			}
			if code != done && !strings.HasPrefix(last, "promptfed: ") || code == done && args[0] != "run" &&
				last != "" || len(last) > 16<<10 || strings.ContainsFunc(last, unicode.IsControl) {
				t.Errorf("%s: %v ends with %d and says %.300q", list[i].what, args, code, text)
			}
			if code == done && args[0] == "check" && args[1] == dir {
				accepted++
			}
		}
		if i%50 == 0 {
			debug.FreeOSMemory()
		}
	}
	t.Logf("%d of %d files, %d accepted, %v", (len(list)-from+step-1)/step, len(list), accepted, time.Since(began))
}

// quiet runs a command in this process and returns its standard error.
func quiet(t *testing.T, dir string, args []string) (code int, text string) {
	t.Helper()
	errs, err := os.Create(filepath.Join(dir, "stderr"))
	goldentest.NoError(t, err)
	defer errs.Close()
	null, err := os.OpenFile(os.DevNull, os.O_WRONLY, 0)
	goldentest.NoError(t, err)
	defer null.Close()
	out, was := os.Stdout, os.Stderr
	os.Stdout, os.Stderr = null, errs
	defer func() { os.Stdout, os.Stderr = out, was }()
	code = command.Execute(busytest.Context(t), args)
	return code, string(read(t, errs.Name()))
}

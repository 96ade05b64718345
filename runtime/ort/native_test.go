package ort_test

import (
	"fmt"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"promptfed/runtime/filetest"
	"promptfed/runtime/goldentest"
)

// The C compiler compares the indices of functions with those of OrtApi in the binding's header.
func TestIndicesOfOrtApi(t *testing.T) {
	dir, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}}", "github.com/yalue/onnxruntime_go").Output()
	goldentest.NoError(t, err)
	var used [][]string
	for _, header := range []string{"native.h", "../kernels/domain.h"} {
		source := filetest.Read(t, header)
		found := regexp.MustCompile(`(?m)^\t([A-Z]\w+) = (\d+),$`).FindAllStringSubmatch(string(source), -1)
		if len(found) < 10 {
			t.Fatalf("%d functions found in %s", len(found), header)
		}
		used = append(used, found...)
	}
	var asserts strings.Builder
	fmt.Fprintf(&asserts, "#include <stddef.h>\n#include \"%s/onnxruntime_c_api.h\"\n", strings.TrimSpace(string(dir)))
	for _, m := range used {
		fmt.Fprintf(&asserts, "_Static_assert(offsetof(OrtApi, %s) == %s * sizeof(void *), \"%[1]s\");\n", m[1], m[2])
	}
	file := filepath.Join(t.TempDir(), "table.c")
	filetest.Write(t, file, asserts.String())
	if out, err := exec.Command("cc", "-fsyntax-only", file).CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}

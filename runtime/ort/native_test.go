package ort_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// The header lists the functions in the table's order, each in one of three ways.
func TestPlacesInTheTable(t *testing.T) {
	dir, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}}", "github.com/yalue/onnxruntime_go").Output()
	if err != nil {
		t.Fatal(err)
	}
	raw, err := os.ReadFile(filepath.Join(strings.TrimSpace(string(dir)), "onnxruntime_c_api.h"))
	if err != nil {
		t.Fatal(err)
	}
	_, table, _ := strings.Cut(string(raw), "struct OrtApi {")
	table, _, _ = strings.Cut(table, "\n};")
	table = regexp.MustCompile(`(?s)/\*.*?\*/|//[^\n]*`).ReplaceAllString(table, "")
	var names []string
	for _, m := range regexp.MustCompile(`ORT_API2_STATUS\(\s*(\w+)|ORT_CLASS_(RELEASE)\(\s*(\w+)\)|\(\s*ORT_API_CALL`+
		`\s*\*\s*(\w+)\s*\)`).FindAllStringSubmatch(table, -1) {
		if m[2] != "" {
			m[3] = "Release" + m[3]
		}
		names = append(names, m[1]+m[3]+m[4])
	}
	source, err := os.ReadFile("native.h")
	if err != nil {
		t.Fatal(err)
	}
	used := regexp.MustCompile(`(?m)^\t([A-Z]\w+) = (\d+),$`).FindAllStringSubmatch(string(source), -1)
	if len(used) < 10 {
		t.Fatalf("%d functions found in native.h", len(used))
	}
	for _, m := range used {
		if at, err := strconv.Atoi(m[2]); err != nil || slices.Index(names, m[1]) != at {
			t.Errorf("%s is said to be at %s, the header has it at %d", m[1], m[2], slices.Index(names, m[1]))
		}
	}
}

package program

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"promptfed/runtime/filetest"
	"promptfed/runtime/goldentest"
)

// inspect shows a checkpoint that cannot be converted, with the reason, and fails.
func TestInspectRefuses(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "clip")
	goldentest.NoError(t, os.CopyFS(dir, os.DirFS("../../../models/bundle/converted/testdata/huggingface")))
	path := filepath.Join(dir, "config.json")
	text := strings.Replace(string(read(t, path)), `"hidden_act"`, `"rope_theta":100,"hidden_act"`, 1)
	filetest.Write(t, path, text)
	out, errText, code := call("inspect", dir)
	if code == 0 || !strings.Contains(out, "text_config.rope_theta = 100 is unknown") ||
		!strings.Contains(errText, dir+" cannot be converted") {
		t.Errorf("exit %d: %s%s", code, out, errText)
	}
}

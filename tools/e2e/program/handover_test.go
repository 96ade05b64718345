package program

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"promptfed/federation/data/datatest"
)

// promptfed runs promptfed-net beside it for the commands across machines: their help, completion, errors and exit
// codes are those of promptfed-net.
func TestHandover(t *testing.T) {
	net, config := programs.Promptfed+"-net", filepath.Join(datatest.Module(t), "configs/demo/1-zeroshot.yaml")
	for _, args := range []string{"serve --help", "help join", "__complete serve --qu", "status",
		"work x://y --jobs -1", "certs", "launch", "run missing.yaml --cluster x", "run BUNDLED --cluster x://y"} {
		args := strings.Fields(strings.ReplaceAll(args, "BUNDLED", config))
		here, there := exec.Command(programs.Promptfed, args...), exec.Command(net, args...)
		said, _ := here.CombinedOutput()
		want, _ := there.CombinedOutput()
		if code, whole := here.ProcessState.ExitCode(), there.ProcessState.ExitCode(); code != whole ||
			string(said) != string(want) {
			t.Errorf("%v: exit %d, %s; promptfed-net: exit %d, %s", args, code, said, whole, want)
		}
		if len(want) == 0 {
			t.Errorf("%v printed nothing", args)
		}
	}
}

// Without promptfed-net, or with one of another version, the error says what to do.
func TestHandoverRefused(t *testing.T) {
	dir := t.TempDir()
	alone := filepath.Join(dir, "promptfed")
	if err := os.Link(programs.Promptfed, alone); err != nil {
		t.Fatal(err)
	}
	check := func(want string) {
		t.Helper()
		c := exec.Command(alone, "serve", "x.yaml")
		out, _ := c.CombinedOutput()
		if text := string(out); c.ProcessState.ExitCode() != failed || !strings.Contains(text, want) ||
			strings.Count(text, "\n") != 1 {
			t.Errorf("%s; want one line with %q", text, want)
		}
	}
	check("promptfed-net is missing; commands across machines need it beside promptfed: make build")
	out, err := exec.Command("go", "build", "-ldflags", "-s -w -X promptfed/runtime/version.stamp=0123456789ab", "-o",
		dir, "promptfed/tools/promptfed-net").CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	check("but promptfed-net beside it is version")
}

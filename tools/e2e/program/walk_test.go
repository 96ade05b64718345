package program

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// step changes a line of a page before the test runs it: with is appended, and why is the reason for skipping the line.
// line is the prefix of the line without the name of the program.
type step struct{ line, with, why string }

// walk is a new user who follows a page from top to bottom, in an empty folder.
type walk struct {
	*testing.T
	steps  []step
	words  *strings.Replacer // values of placeholders of the page
	seen   map[string]bool
	joined []*process // a server and its clients
}

// walker enters an empty folder in which the shell finds the program.
func walker(t *testing.T, steps []step) *walk {
	home := t.TempDir()
	t.Setenv("XDG_CACHE_HOME", filepath.Join(home, "cache"))
	t.Setenv("PATH", programs.Dir+string(os.PathListSeparator)+os.Getenv("PATH"))
	t.Chdir(home)
	return &walk{T: t, steps: steps, words: strings.NewReplacer(), seen: map[string]bool{}}
}

// follow runs commands in a shell and returns their output. A server and its clients run until the next command, and a
// page or a served classifier until the end of the test.
func (w *walk) follow(commands string) string {
	w.Helper()
	for _, s := range w.steps {
		if strings.HasPrefix(strings.TrimPrefix(commands, "promptfed "), s.line) {
			w.seen[s.line] = true
			if s.why != "" {
				return ""
			}
			commands = strings.TrimSuffix(commands, "\n") + s.with
			break
		}
	}
	commands = w.words.Replace(commands)
	args := strings.Fields(commands)
	switch {
	case args[0] == "promptfed" && (args[1] == "serve" || args[1] == "join"):
		w.joined = append(w.joined, start(w.T, args[1:]...))
		return ""
	case args[0] == "promptfed" && (args[1] == "ui" || strings.Contains(commands, " --listen ")):
		p := start(w.T, args[1:]...)
		p.says(w.T, "http://127.0.0.1:")
		return p.said()
	}
	w.wait()
	out, err := exec.Command("sh", "-e", "-c", commands).CombinedOutput()
	if err != nil {
		w.Fatalf("%s: %v\n%s", commands, err, out)
	}
	return string(out)
}

// wait waits for a server and its clients, and returns their output.
func (w *walk) wait() string {
	w.Helper()
	said := ""
	for _, p := range w.joined {
		p.ends(w.T)
		said += p.said()
	}
	w.joined = nil
	return said
}

// ends checks that the page still has every line of the steps.
func (w *walk) ends() {
	w.Helper()
	w.wait()
	for _, s := range w.steps {
		if !w.seen[s.line] {
			w.Errorf("the page has no %q any more", s.line)
		}
	}
}

// drawFolder makes a folder of images, one at each combination of the parts of a path.
func drawFolder(t *testing.T, name string, parts ...[]string) string {
	t.Helper()
	paths := []string{name}
	for _, part := range parts {
		var next []string
		for _, p := range paths {
			for _, n := range part {
				next = append(next, filepath.Join(p, n))
			}
		}
		paths = next
	}
	for i, p := range paths {
		drawImage(t, p, i)
	}
	return name
}

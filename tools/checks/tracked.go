package checks

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"unicode/utf8"
)

// Limits on what is tracked, in bytes.
const (
	MaxFile = 5 << 20
	MaxAll  = 60 << 20
)

// folders are the top-level folders of the repository, besides those that start with a dot.
var folders = []string{"models", "runtime", "federation", "tools", "configs", "docs"}

// traces are patterns of the machine on which a file was written, or of the registry that served a package.
var traces = []struct {
	what    string
	pattern *regexp.Regexp
}{
	{"an absolute path of one machine", regexp.MustCompile(
		`(?:^|[^\w.~$)}/-])/(?:work|workspace|root|home|Users|tmp|mnt|private)/[\w.-]`)},
	{"a registry's host", regexp.MustCompile(`(?i)\b(?:registry\.[a-z0-9-]+\.[a-z]{2,}|(?:proxy|sum)\.golang\.org|` +
		`pypi\.org|[a-z0-9-]+\.pythonhosted\.org)\b`)},
}

// Tracked lists the files that git tracks under root; ok is false if root is not a git checkout or git is missing.
func Tracked(root string) (files []string, ok bool) {
	cmd := exec.Command("git", "ls-files", "-z")
	cmd.Dir = root
	out, err := cmd.Output()
	if err != nil {
		return nil, false
	}

	for name := range strings.SplitSeq(strings.TrimRight(string(out), "\x00"), "\x00") {
		files = append(files, name)
	}

	return files, true
}

// Places finds files outside the top-level folders.
func Places(files []string) []string {
	var bad []string
	for _, f := range files {
		top, _, nested := strings.Cut(f, "/")
		if nested && !strings.HasPrefix(top, ".") && !slices.Contains(folders, top) {
			bad = append(bad, fmt.Sprintf("%s: folders at the top are %s", f, strings.Join(folders, ", ")))
		}
	}

	return bad
}

// Sizes finds files that are too large, and a repository that is too large.
func Sizes(bytes map[string]int64) []string {
	var bad []string
	sum := int64(0)
	for f, n := range bytes {
		sum += n
		if n >= MaxFile {
			bad = append(bad, fmt.Sprintf("%s has %d bytes; a tracked file has less than %d", f, n, MaxFile))
		}
	}

	if sum >= MaxAll {
		bad = append(bad, fmt.Sprintf("tracked files have %d bytes together; the limit is %d", sum, MaxAll))
	}

	slices.Sort(bad)
	return bad
}

// Traces finds lines of a text that name the machine or the registry. It skips binary files.
func Traces(file string, text []byte) []string {
	if bytes.IndexByte(text, 0) >= 0 || !utf8.Valid(text) {
		return nil
	}

	var bad []string
	n := 0
	for line := range bytes.SplitSeq(text, []byte("\n")) {
		n++
		for _, t := range traces {
			if m := t.pattern.Find(line); m != nil {
				bad = append(bad, fmt.Sprintf("%s:%d: %s, %q", file, n, t.what, m))
			}
		}
	}

	return bad
}

// Measure reads the tracked files and returns their sizes and the traces in them. It skips deleted files that are still
// tracked.
func Measure(root string, files []string) (sizes map[string]int64, bad []string, err error) {
	sizes = map[string]int64{}
	for _, f := range files {
		text, err := os.ReadFile(filepath.Join(root, f))
		if os.IsNotExist(err) {
			continue
		}
		if err != nil {
			return nil, nil, err
		}
		sizes[f] = int64(len(text))
		bad = append(bad, Traces(f, text)...)
	}

	return sizes, bad, nil
}

package checks

import (
	"maps"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"promptfed/runtime/filetest"
	"promptfed/runtime/goldentest"
)

// notPromised are words of sentences that describe methods, data, formats or other programs, and promise nothing.
var notPromised = []string{"never train", "were never trained", "what cannot run", "cannot be set there",
	"images with the same bytes", "a set that cannot be opened", "properties that cannot be found",
	"float32 cannot distinguish", "-1 never", "a round cannot take less", "cannot be averaged",
	"cannot check the original", "cannot be compared", "cannot be told", "never ends", "never clear its momentum",
	"never tested", "never a guess", "what they cannot be combined with"}

var listedPromise = regexp.MustCompile("(?m)^\\| (.+) \\| `(?:Test|Fuzz).* \\|$")

// Each sentence of README.md and docs/ that promises something names its test, or stands in the list of promises of
// docs/CONTRIBUTING.md, which has no other promises.
func TestPromises(t *testing.T) {
	dir := goldentest.Module(t)
	list := filetest.Read(t, dir, "docs", "CONTRIBUTING.md")
	listed := map[string]bool{} // whether the words stand in a page
	for _, m := range listedPromise.FindAllStringSubmatch(string(list), -1) {
		listed[m[1]] = false
	}
	for _, words := range notPromised {
		listed[words] = false
	}

	pages, err := filepath.Glob(filepath.Join(dir, "docs", "*.md"))
	goldentest.NoError(t, err)
	for _, page := range append(pages, filepath.Join(dir, "README.md")) {
		b := filetest.Read(t, page)
		for _, s := range Promises(string(b)) {
			known := false
			for words := range listed {
				if strings.Contains(s, words) {
					known, listed[words] = true, true
				}
			}
			if !known {
				t.Errorf("%s promises %q: name its test there, or list it with its test in docs/CONTRIBUTING.md",
					filepath.Base(page), s)
			}
		}
	}
	for _, words := range slices.Sorted(maps.Keys(listed)) {
		if !listed[words] {
			t.Errorf("no page says %q", words)
		}
	}
}

func TestPromisesAreFound(t *testing.T) {
	page := "# It never does\n\nA client\nnever sends it. It cannot fail (`TestX`).\n\n- Exactly one; the rest\n" +
		"- No client\n\n```\nnever\n```\n\n| it cannot | a |\n\nIt [may](#never)."
	got := Promises(page)
	if want := []string{"- Exactly one", "No client", "| it cannot | a |"}; !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}

package main

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

func TestSites(t *testing.T) {
	const source = `package p

func f(a, b int, s string) (int, error) {
	if a < b || s == "x"+"y" {
		return -a, nil
	}
	n := 0
	for i := 0; i < b; i++ {
		n += max(a, i)
	}
	if err := g(); err != nil {
		return 0, err
	}
	n--
	return n, nil
}
`
	sites, err := sitesOf("f.go", []byte(source))
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, s := range sites {
		got = append(got, s.key())
		fresh := source[:s.start] + s.by + source[s.end:]
		if _, err := sitesOf("f.go", []byte(fresh)); err != nil {
			t.Errorf("%s: %v", s.key(), err)
		}
	}
	want := []string{
		`f.go f: a < b || s == "x"+"y" -> false && (a < b || s == "x"+"y")`,
		`f.go f: a < b || s == "x"+"y" -> a < b && s == "x"+"y"`,
		`f.go f: a < b -> a <= b`,
		`f.go f: s == "x"+"y" -> s != "x"+"y"`,
		`f.go f: -a -> a`,
		`f.go f: i < b -> i <= b`,
		`f.go f: n += max(a, i) -> n -= max(a, i)`,
		`f.go f: max(a, i) -> min(a, i)`,
		`f.go f: n-- -> n++`,
	}
	if !slices.Equal(got, want) {
		t.Errorf("got %s", strings.Join(got, "\n"))
	}
	if !strings.Contains(source[sites[2].start-2:], "a < b") || sites[2].line != 4 {
		t.Errorf("%+v", sites[2])
	}
}

// The tests of a package find what they check, and neither code that no test reaches nor results that none compares.
func TestCheck(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{
		"go.mod": "module m\n",
		"m.go": `package m

func tested(a, b int) bool { return a < b }

func ran(a, b int) bool { return a > b }

func untested(a, b int) int { return a - b }
`,
		"m_test.go": `package m

import "testing"

func Test(t *testing.T) {
	ran(1, 2)
	if tested(1, 1) || !tested(1, 2) {
		t.Error("less")
	}
}
`,
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	t.Chdir(dir)
	target, sites, err := load(".")
	if err != nil {
		t.Fatal(err)
	}
	target.scratch = t.TempDir()
	if err := target.measure(); err != nil {
		t.Fatal(err)
	}
	got := map[string]string{}
	for _, s := range sites {
		if got[s.function], err = target.try(s); err != nil {
			t.Fatal(err)
		}
	}
	if len(got) != 3 || got["tested"] != found || got["ran"] != notFound || got["untested"] != notReached {
		t.Errorf("%v", got)
	}
	broken := sites[0]
	broken.by = "?"
	if v, err := target.try(broken); err != nil || v != unbuilt {
		t.Error(v, err)
	}
}

// Every entry of equivalent.txt is a fault of the code, and has a reason.
func TestEquivalent(t *testing.T) {
	lines := strings.Split(strings.TrimSpace(equivalent), "\n")[1:]
	faults := map[string]map[string]bool{}
	for _, line := range lines {
		at := strings.LastIndex(line, " (")
		file, _, _ := strings.Cut(line, " ")
		folder := strings.TrimPrefix(filepath.Dir(file), "promptfed/")
		if at < 0 || !strings.HasSuffix(line, ")") {
			t.Errorf("%s: the reason is missing", line)
			continue
		}
		if faults[file] == nil {
			source, err := os.ReadFile(filepath.Join("../../..", folder, filepath.Base(file)))
			if err != nil {
				t.Error(err)
				continue
			}
			sites, err := sitesOf(filepath.Base(file), source)
			if err != nil {
				t.Fatal(err)
			}
			faults[file] = map[string]bool{}
			for _, s := range sites {
				faults[file]["promptfed/"+folder+"/"+s.key()] = true
			}
		}
		if !faults[file][line[:at]] {
			t.Errorf("%s: there is no such fault", line)
		}
	}
}

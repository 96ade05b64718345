package main

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"unicode"

	"promptfed/configs"
	"promptfed/federation/experiment"
	"promptfed/runtime/filetest"
	"promptfed/runtime/goldentest"
)

const root = "../.."

func TestTablesSayWhatTheCodeSays(t *testing.T) {
	list, err := documents(root)
	goldentest.NoError(t, err)
	used := 0
	for _, d := range list {
		used += len(opening.FindAllString(d.is, -1))
		if !d.current {
			t.Errorf("%s is not what the code says; run make generate", d.path)
		}
	}
	all, err := tables(root)
	goldentest.NoError(t, err)
	if used != len(all) {
		t.Errorf("%d tables are in the documents, there are %d", used, len(all))
	}
}

// TestPapersBesideOtherFiles: a file beside the papers' folders is of no paper. Papers miss in this root.
func TestPapersBesideOtherFiles(t *testing.T) {
	other := t.TempDir()
	goldentest.NoError(t, os.MkdirAll(filepath.Join(other, "configs", "papers", "empty"), 0o755))
	goldentest.NoError(t, os.WriteFile(filepath.Join(other, "configs", "papers", ".DS_Store"), nil, 0o644))
	_, err := paperTables(other)
	goldentest.WantError(t, err, "no file of configs/papers is of")
}

func TestLinksLeadSomewhere(t *testing.T) {
	list, err := documents(root)
	goldentest.NoError(t, err)
	link := regexp.MustCompile(`\]\(([^)\s]+)\)`)
	heading := regexp.MustCompile(`(?m)^#+ (.*)$`)
	checked := 0
	for _, d := range list {
		for _, m := range link.FindAllStringSubmatch(d.is, -1) {
			path, part, _ := strings.Cut(m[1], "#")
			if strings.Contains(path, "://") {
				continue
			}
			checked++
			file := d.path // for a link to a heading of the same page
			if path != "" {
				file = filepath.Join(filepath.Dir(d.path), path)
			}
			text, err := os.ReadFile(file)
			if err != nil {
				t.Errorf("%s: link to %s: %v", d.path, m[1], err)
				continue
			}
			found := part == ""
			for _, h := range heading.FindAllStringSubmatch(string(text), -1) {
				found = found || anchor(h[1]) == part
			}
			if !found {
				t.Errorf("%s: link to %s: no such heading", d.path, m[1])
			}
		}
	}
	if checked < 10 {
		t.Errorf("only %d links were found", checked)
	}
}

// A link to a Go file in a page about the code names the file, its package or declarations in it. Code words directly
// after such a link, as in "[worker.go](...), `train` and `step`", are declarations too.
func TestLinksToCodeNameDeclarations(t *testing.T) {
	link := regexp.MustCompile("\\[([^]]+)\\]\\(([^)\\s]+\\.go)\\)((?:,? (?:and )?`\\w+`)*)")
	symbol := regexp.MustCompile(`^(?:(\w+)\.)?([A-Z]\w*)$`)
	symbols := 0
	for _, page := range []string{"first-hour.md", "architecture.md", "CONTRIBUTING.md"} {
		text := filetest.Read(t, root, "docs", page)
		for _, m := range link.FindAllStringSubmatch(strings.ReplaceAll(string(text), "\n", " "), -1) {
			file := filepath.Join(root, "docs", m[2])
			tree, err := parser.ParseFile(token.NewFileSet(), file, nil, 0)
			if err != nil {
				t.Errorf("%s: %v", page, err)
				continue
			}
			if name := filepath.Base(m[1]); filepath.Ext(name) == ".go" && name != filepath.Base(file) {
				t.Errorf("%s: the link to %s is called %s", page, m[2], m[1])
			}
			names := strings.FieldsFunc(m[3], func(r rune) bool { return !unicode.IsLetter(r) && r != '_' })
			names = slices.DeleteFunc(names, func(s string) bool { return s == "and" })
			for _, word := range strings.Fields(m[1]) {
				if x := symbol.FindStringSubmatch(word); x != nil {
					names = append(names, x[2])
					if x[1] != "" && x[1] != tree.Name.Name {
						t.Errorf("%s: %s names %s, which is of package %s", page, m[2], word, tree.Name.Name)
					}
				}
			}
			symbols += len(names)
			for _, name := range names {
				if !declares(tree, name) {
					t.Errorf("%s: %s does not declare %s", page, m[2], name)
				}
			}
		}
	}
	if symbols < 8 {
		t.Errorf("only %d declarations are named", symbols)
	}
}

// declares reports whether a file declares a function, method, type, constant or variable of a name.
func declares(f *ast.File, name string) (found bool) {
	for _, d := range f.Decls {
		switch d := d.(type) {
		case *ast.FuncDecl:
			found = found || d.Name.Name == name
		case *ast.GenDecl:
			for _, s := range d.Specs {
				switch s := s.(type) {
				case *ast.TypeSpec:
					found = found || s.Name.Name == name
				case *ast.ValueSpec:
					found = found || slices.ContainsFunc(s.Names, func(id *ast.Ident) bool { return id.Name == name })
				}
			}
		}
	}
	return found
}

// anchor returns the fragment of a link to a heading, by GitHub's rule.
func anchor(heading string) string {
	kept := regexp.MustCompile(`[^\p{L}\p{N} _-]`).ReplaceAllString(strings.ToLower(heading), "")
	return strings.ReplaceAll(kept, " ", "-")
}

func TestFill(t *testing.T) {
	tables := map[string]string{"a": "new\n"}
	cases := []struct{ text, want, err string }{
		{"x\n<!-- from the code: a -->\nold\n<!-- end -->\ny\n", "x\n<!-- from the code: a -->\n\nnew\n\n<!-- end " +
			"-->\ny\n", ""},
		{"no place\n", "no place\n", ""},
		{"<!-- from the code: b -->\n<!-- end -->\n", "", `no table "b"`},
		{"<!-- from the code: a -->\n", "", "has no line"},
		{"<!-- from the code: a -->\n<!-- from the code: a -->\n<!-- end -->\n", "", "has no line"},
	}
	for _, c := range cases {
		got, err := fill(c.text, tables)
		if got != c.want || (err == nil) != (c.err == "") || err != nil && !strings.Contains(err.Error(), c.err) {
			t.Errorf("%q gives %q and error %v", c.text, got, err)
		}
		if again, _ := fill(got, tables); err == nil && again != got {
			t.Errorf("filled twice: %q", again)
		}
	}
}

func TestResultTables(t *testing.T) {
	path := filepath.Join(t.TempDir(), "results.csv")
	text := "evaluation,method,mean_rank,PACS,PACS_std,over_B,p_holm\nglobal,A,1.0,50.1,4.1,+2.0,0.0499\n" +
		"global,B,2.0,48.1,4.0,,\npersonal,A,1.0,47.9,0.1,-0.2,0.05\n"
	filetest.Write(t, path, text)
	head := "| method | mean rank | PACS | over B |\n|---|---|---|---|\n"
	global, personal, err := resultTables(path)
	if want := head + "| A | 1.0 | 50.1 ± 4.1 | +2.0 * |\n| B | 2.0 | 48.1 | – |\n"; err != nil || global != want {
		t.Errorf("%q, %v; want %q", global, err, want)
	}
	if want := head + "| A | 1.0 | 47.9 | −0.2 |\n"; personal != want {
		t.Errorf("%q; want %q", personal, want)
	}
}

func TestKeys(t *testing.T) {
	type inner struct {
		B float64 `config:"b" help:"of b"`
	}
	type element struct {
		C bool `config:"c"`
	}
	type squashed struct {
		D string `config:"d"`
	}
	got := allKeys(struct {
		squashed `config:",squash"`
		A        []string  `config:"a"`
		Inner    inner     `config:"inner"`
		List     []element `config:"list" help:"of things"`
		Other    int
	}{squashed: squashed{"x"}, A: []string{"p", "q"}, Inner: inner{0.5}})
	want := []key{{"d", "text", "x", ""}, {"a", "list", `["p", "q"]`, ""}, {"inner.b", "number", "0.5", "of b"},
		{"list", "list", "", "of things"}, {"list[].c", "true or false", "false", ""}}
	if len(got) != len(want) {
		t.Fatalf("got %q; want %q", got, want)
	}
	for i := range got {
		if got[i] != want[i] {
			t.Errorf("key %d is %q; want %q", i, got[i], want[i])
		}
	}
}

func TestEveryKeyIsExplained(t *testing.T) {
	for _, k := range append(allKeys(experiment.Defaults()), allKeys(configs.SweepFile{})...) {
		if k.help == "" {
			t.Errorf("%s has no help text", k.name)
		}
	}
}

package list

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"promptfed/federation/data"
	"promptfed/federation/data/datatest"
	"promptfed/federation/data/sets/settest"
	"promptfed/federation/data/sets/source"
	"promptfed/runtime/filetest"
	"promptfed/runtime/goldentest"
)

var listImages = []string{"im/1.png", "im/2.png", "im/3.png", "im/4.png"}

// TestListFormats: the same list in every format. Classes and domains are sorted case-insensitively.
func TestListFormats(t *testing.T) {
	for name, text := range map[string]string{
		"list.csv": "path,label,domain,split\nim/1.png,zebra,Sketch,train\nim/2.png,Alarm_Clock,photo,train\n" +
			"im/3.png,zebra,photo,val\nim/4.png,Alarm_Clock,photo,test\n",
		// pandas writes a first column without a name.
		"LIST.CSV": "\xef\xbb\xbf;Split;Domain;Label;Image;note\r\n0;training;Sketch;zebra;./im/1.png;x\r\n" +
			"1;train;photo;\"Alarm_Clock\";im/2.png;\r\n2;validation;photo;zebra;im/3.png;\r\n" +
			"3;Test;photo;Alarm_Clock;im/4.png;\r\n",
		"list.tsv": "path\tlabel\tdomain\tsplit\nim/1.png\tzebra\tSketch\ttrain\n" +
			"im/2.png\tAlarm_Clock\tphoto\ttrain\nim/3.png\tzebra\tphoto\tval\nim/4.png\tAlarm_Clock\tphoto\ttest\n",
		"list.json": `[{"path": "im/1.png", "label": "zebra", "domain": "Sketch", "split": "train"},
			{"path": "im/2.png", "label": "Alarm_Clock", "domain": "photo", "split": "train", "more": [1]},
			{"path": "im/3.png", "label": "zebra", "domain": "photo", "split": "val"},
			{"path": "im/4.png", "label": "Alarm_Clock", "domain": "photo", "split": "test"}]`,
		"metadata.jsonl": "\n" + `{"file_name": "im/1.png", "label": "zebra", "domain": "Sketch", "split": "train"}` +
			"\n" + `{"file_name": "im/2.png", "label": "Alarm_Clock", "domain": "photo", "split": "train"}` + "\n" +
			`{"file_name": "im/3.png", "label": "zebra", "domain": "photo", "split": "val"}` + "\n\n" +
			`{"file_name": "im/4.png", "label": "Alarm_Clock", "domain": "photo", "split": "test"}` + "\n",
	} {
		root := datatest.Write(t, datatest.Tree(t, listImages...), map[string]string{name: text})
		for _, at := range []string{root, filepath.Join(root, name)} {
			t.Run(name, func(t *testing.T) {
				s := mustOpen(t, source.Config{Set: "list", Root: at})
				if !slices.Equal(s.Classes, []string{"Alarm Clock", "zebra"}) || !slices.Equal(s.Domains,
					[]string{"photo", "Sketch"}) {
					t.Errorf("%q %q", s.Classes, s.Domains)
				}
				if !slices.Equal(settest.IDs(s.Train), []string{"im/1.png=1.1", "im/2.png=0.0"}) ||
					!slices.Equal(settest.IDs(s.Val),
						[]string{"im/3.png=1.0"}) ||
					!slices.Equal(settest.IDs(s.Test), []string{"im/4.png=0.0"}) {
					t.Errorf("%v %v %v", settest.IDs(s.Train), settest.IDs(s.Val), settest.IDs(s.Test))
				}
				if _, err := s.Train[0].Image(datatest.Decode); err != nil {
					t.Error(err)
				}
			})
		}
	}
}

// TestListNumbers: numeric labels are sorted by value, and a column class has their names.
func TestListNumbers(t *testing.T) {
	root := datatest.Tree(t, listImages...)
	datatest.Write(t, root, map[string]string{"list.csv": "path,label,split\nim/1.png,10,train\nim/2.png,9,train\n" +
		"im/3.png,10,test\n"})
	s := mustOpen(t, source.Config{Set: "list", Root: root, ClassNames: map[string]string{"9": "nine"}})
	if !slices.Equal(s.Classes, []string{"nine", "10"}) || s.Train[0].Label != 1 {
		t.Errorf("%q", s.Classes)
	}
	datatest.Write(t, root, map[string]string{"list.csv": "path;label;class;split\nim/1.png;1;zebra;train\n" +
		"im/2.png;0;Ant_Hill;train\nim/3.png;1;zebra;val\n"})
	if s = mustOpen(t, source.Config{Set: "list", Root: root}); !slices.Equal(s.Classes, []string{"Ant Hill",
		"zebra"}) ||
		len(s.Test) != 1 {
		t.Errorf("%q", s.Classes)
	}
	settest.WantNote(t, s, "val serves as test")
	datatest.Write(t, root, map[string]string{"list.csv": "path,class\nim/1.png,zebra\nim/2.png,ant\n"})
	_, err := openSet(source.Config{Set: "list", Root: root})
	goldentest.WantError(t, err, "no test images") // two images are too few for one in five
}

// TestListHoldOut: without a column split, and where it holds train alone, the last of the five images of a class in a
// domain is a test image, for any order of the lines and any spelling of the paths.
func TestListHoldOut(t *testing.T) {
	var files, lines []string
	for i := range 10 {
		for _, d := range []string{"b", "a"} {
			f := fmt.Sprintf("%s/%d.png", d, i)
			files = append(files, f)
			lines = append(lines, fmt.Sprintf("%s,%s,%s\n", f, []string{"cat", "dog"}[i%2], d))
		}
	}
	root := datatest.Tree(t, files...)
	head := "path,label,domain"
	for _, order := range []func(){func() {}, func() { slices.Reverse(lines) }, func() {
		lines[0] = "./" + lines[0]
	}, func() {
		head += ",split"
		for i := range lines {
			lines[i] = strings.Replace(lines[i], "\n", ",train\n", 1)
		}
	}} {
		order()
		datatest.Write(t, root, map[string]string{"list.csv": head + "\n" + strings.Join(lines, "")})
		s := mustOpen(t, source.Config{Set: "list", Root: root})
		if !slices.Equal(settest.IDs(s.Test), []string{"a/8.png=0.0", "a/9.png=1.0", "b/8.png=0.1", "b/9.png=1.1"}) ||
			len(s.Train) != 16 {
			t.Errorf("%v", settest.IDs(s.Test))
		}
	}
}

func TestListErrors(t *testing.T) {
	for _, c := range []struct {
		name, text string
		words      []string
	}{
		{"list.csv", "", []string{"list.csv", "empty"}},
		{"list.csv", "path,name\n", []string{"line 1", "path,name", "lacks"}},
		{"list.csv", "path,file,label\n", []string{"line 1", "two columns", "path"}},
		{"list.csv", "path,label\n", []string{"list.csv", "no images"}},
		{"list.csv", "path,label\nim/1.png,a\nim/2.png\n", []string{"line 3", "fields"}},
		{"list.csv", "path,label\nim/1.png,a\n\n,b\n", []string{"line 4", "no path"}},
		{"list.csv", "path,label\nim/1.png,\n", []string{"line 2", "no label"}},
		{"list.csv", "path,label,split\nim/1.png,a,extra\n", []string{"line 2", `"extra"`, "train, val or test"}},
		{"list.csv", "path,label,split\nim/1.png,a,train\nim/2.png,a,\n", []string{"line 3", "every line"}},
		{"list.csv", "path,label,domain\nim/1.png,a,x\nim/2.png,a,\n", []string{"line 3", "every line"}},
		{"list.csv", "path,label\nim/1.png,a\nim/2.png,A\n", []string{"line 3", `"A"`, `"a"`, "line 2"}},
		{"list.csv", "path,label\nim/1.png,a_b\nim/2.png,a b\n", []string{"line 3", `"a b"`, `"a_b"`, "line 2"}},
		{"list.csv", "path,label,domain\nim/1.png,a,Art\nim/2.png,a,art\n", []string{"line 3", `domain "art"`,
			`"Art"`, "line 2"}},
		{"list.csv", "path,label\n/etc/passwd,a\n", []string{"line 2", "/etc/passwd", "absolute"}},
		{"list.csv", "path,label\n../x.png,a\n", []string{"line 2", "leaves"}},
		{"list.csv", "path,label\n\"im/1.png,a\n", []string{"list.csv", "line 2"}},
		{"list.csv", "path,label,class\nim/1.png,a,b\n", []string{"line 2", "numbers in label"}},
		{"list.csv", "path,label,class\nim/1.png,0,b\nim/2.png,0,c\n", []string{"line 3", `"b"`, `"c"`}},
		{"list.csv", "path,label\nim/1.png,-1\n", []string{"line 2", "out of range"}},
		{"list.csv", "path,label,split\nim/1.png,a,train\nim/1.png,a,test\n", []string{"im/1.png twice"}},
		{"list.csv", "path,label,split\nim/1.png,a,train\nim/9.png,a,test\nim/8.png,a,test\n", []string{"2 of the 3",
			filepath.Join("im", "9.png"), "missing"}},
		{"list.json", "", []string{"empty"}},
		{"list.json", "[{\"path\": \"a\",\n\"label\": {}}]", []string{"entry 1, line 2", `"label"`, "neither"}},
		{"list.json", "[{\"path\": \"a\",\n\"file\": \"b\"}]", []string{"line 2", `"file"`, `"path"`}},
		{"list.json", "[\n\n{\"path\": \"im/1.png\"}]", []string{"line 3", "no label"}},
		{"list.json", "[\n1]", []string{"entry 1", "object"}},
		{"list.json", "[{\"path\": \"a\", \"label\": 1}", []string{"ends early"}},
		{"list.jsonl", "{\"path\": \"im/1.png\", \"label\": 0}\n{\"path\": \"im/2.png\"\n", []string{"entry 2",
			"ends early"}},
		{"list.jsonl", "\n{\"path\": \"im/1.png\", \"label\": 0}\n{\"path\": \"im/2.png\"}\n", []string{"line 3",
			"no label"}},
	} {
		root := datatest.Write(t, datatest.Tree(t, listImages...), map[string]string{c.name: c.text})
		_, err := openSet(source.Config{Set: "list", Root: root})
		goldentest.WantError(t, err, append(c.words, c.name)...)
	}
	root := datatest.Tree(t, "a.png")
	_, err := openSet(source.Config{Set: "list", Root: root})
	goldentest.WantError(t, err, filepath.Join(root, "list.csv"), filepath.Join(root, "list.json"), "data.root")
	_, err = openSet(source.Config{Set: "list", Root: filepath.Join(root, "no.csv")})
	goldentest.WantError(t, err, "no.csv", "does not exist")
	datatest.Write(t, root, map[string]string{"list.csv": "", "list.json": ""})
	_, err = openSet(source.Config{Set: "list", Root: root})
	goldentest.WantError(t, err, "list.csv", "list.json", "both")
}

// TestListTooLarge: a list has at most MaxList bytes; the file is sparse.
func TestListTooLarge(t *testing.T) {
	path := filetest.Write(t, filepath.Join(t.TempDir(), "list.csv"), "")
	goldentest.NoError(t, os.Truncate(path, source.MaxList+1))
	_, err := openSet(source.Config{Set: "list", Root: path})
	goldentest.WantError(t, err, path, "at most")
}

func fuzzList(f *testing.F, read func(raw string, add func(int, entry) error) error) {
	f.Fuzz(func(t *testing.T, raw string) {
		l := &listing{}
		lines := strings.Count(raw, "\n") + 1
		err := read(raw, func(line int, e entry) error {
			if line < 1 || line > lines {
				t.Fatalf("line %d of %d", line, lines)
			}
			return l.add(line, e)
		})
		if err != nil || len(l.entries) == 0 {
			return
		}
		r, err := l.images()
		if err != nil {
			return
		}
		for _, it := range r.Items {
			if !filepath.IsLocal(it.Path) || r.Names[it.Label] == "" || it.Split == "" || it.Domain < 0 ||
				it.Domain >= max(1, len(r.Domains)) {
				t.Fatalf("%+v", it)
			}
		}
		r.Root, r.Images = t.TempDir(), t.TempDir()
		if _, err := r.Set(source.Config{Corrupt: data.Skip}); err == nil {
			t.Fatal("a set without files")
		}
	})
}

func FuzzListCSV(f *testing.F) {
	f.Add("path,label,domain,split\na.png,x,d,train\nb.png,y,d,test\n")
	f.Add("file;class;label\n\"a;b\";x;0\n")
	f.Add("path\tlabel\na\t1\n")
	fuzzList(f, func(raw string, add func(int, entry) error) error {
		return readCSVList(0)(strings.NewReader(raw), add)
	})
}

func FuzzListJSON(f *testing.F) {
	f.Add(`[{"path": "a.png", "label": 1, "class": "x"}, {"path": "b.png", "label": 0, "class": "y"}]`)
	f.Add("{\"path\": \"a\", \"label\": \"x\"}\n{\"file\": \"b\", \"label\": null, \"class\": \"z\"}")
	fuzzList(f, func(raw string, add func(int, entry) error) error { return readJSONList(strings.NewReader(raw), add) })
}

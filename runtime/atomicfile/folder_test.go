package atomicfile

import (
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"promptfed/runtime/filetest"
	"promptfed/runtime/goldentest"
)

// names lists the files of a folder.
func names(t *testing.T, dir string) (out []string) {
	t.Helper()
	list, err := os.ReadDir(dir)
	goldentest.NoError(t, err)
	for _, e := range list {
		out = append(out, e.Name())
	}
	return out
}

// Folder replaces what may be replaced and refuses the rest. After each call nothing else is beside the folder, except
// folders of others that are not older than a day or not partial ones.
func TestFolder(t *testing.T) {
	full := errors.New("no space left")
	for _, c := range []struct {
		what, before string // a file or folder that is there
		fill         error
		want         []string // in the folder
		err          string
	}{
		{"nothing there", "", nil, []string{"new"}, ""},
		{"an empty folder", "d/", nil, []string{"new"}, ""},
		{"a marked folder", "d/mark", nil, []string{"new"}, ""},
		{"a failure", "", full, nil, "no space left"},
		{"a failure over a marked folder", "d/mark", full, []string{"mark"}, "no space left"},
		{"a failure over an empty folder", "d/", full, []string{}, "no space left"},
		{"a folder of others", "d/other", nil, []string{"other"},
			"d exists and has no mark: choose another place, or remove it"},
		{"a file", "d", nil, nil, "d exists and is not a folder: choose another place"},
	} {
		parent := filepath.Join(t.TempDir(), "deep")
		old, young := filepath.Join(parent, ".partial-x-1"), filepath.Join(parent, ".partial-x-2")
		aside, other := filepath.Join(parent, ".partial-x-1.old"), filepath.Join(parent, "other")
		file := filepath.Join(parent, ".partial-file")
		if c.before != "" {
			for _, dir := range []string{old, young, aside, other} {
				filetest.Write(t, filepath.Join(dir, "f"), "")
			}
			filetest.Write(t, file, "")
			for path, age := range map[string]time.Duration{old: 25 * time.Hour, young: 23 * time.Hour,
				aside: 25 * time.Hour, other: 25 * time.Hour, file: 25 * time.Hour} {
				goldentest.NoError(t, os.Chtimes(path, time.Now().Add(-age), time.Now().Add(-age)))
			}
			if c.before == "d/" {
				goldentest.NoError(t, os.Mkdir(filepath.Join(parent, "d"), 0o777))
			} else {
				filetest.Write(t, filepath.Join(parent, c.before), "")
			}
		}
		err := Folder(filepath.Join(parent, "d"), "mark", func(tmp string) error {
			if base := filepath.Base(tmp); filepath.Dir(tmp) != parent || !strings.HasPrefix(base, ".partial-d-") {
				t.Errorf("%s: it is filled at %s", c.what, tmp)
			}
			filetest.Write(t, filepath.Join(tmp, "new"), "")
			return c.fill
		})
		if (err == nil) != (c.err == "") || err != nil && !strings.HasSuffix(err.Error(), c.err) {
			t.Errorf("%s: %v, want %s", c.what, err, c.err)
		}
		left := []string{}
		if c.before != "" {
			left = []string{".partial-file", ".partial-x-1.old", ".partial-x-2", "other"}
			if c.err != "" && c.fill == nil { // it did not begin
				left = append(left, ".partial-x-1")
			}
		}
		if c.want != nil || c.before == "d" {
			left = append(left, "d")
		}
		slices.Sort(left)
		if got := names(t, parent); !slices.Equal(got, left) {
			t.Errorf("%s: %v is left, want %v", c.what, got, left)
		}
		if c.want != nil {
			if got := names(t, filepath.Join(parent, "d")); !slices.Equal(got, c.want) {
				t.Errorf("%s: the folder holds %v", c.what, got)
			}
		}
	}
}

func TestJSON(t *testing.T) {
	path := filepath.Join(t.TempDir(), "f.json")
	got := map[string]int{}
	if there, err := ReadJSON(path, &got); there || err != nil {
		t.Errorf("a missing file: %v, %v", there, err)
	}
	goldentest.NoError(t, Write(path, JSON(map[string]int{"a": 1}, " ")))
	if there, err := ReadJSON(path, &got); !there || err != nil || got["a"] != 1 {
		t.Errorf("%v, %v, %v", got, there, err)
	}
	if b, _ := os.ReadFile(path); string(b) != "{\n \"a\": 1\n}\n" {
		t.Errorf("the file is %q", b)
	}
	goldentest.NoError(t, Write(path, Bytes([]byte("{"))))
	if there, err := ReadJSON(path, &got); !there || err == nil || !strings.HasPrefix(err.Error(), path+": ") {
		t.Errorf("half a file: %v, %v", there, err)
	}
	if b, err := ReadAtMost(path, 0); err == nil {
		t.Errorf("%q is read, which is longer than 0 bytes", b)
	}
	if there, err := ReadJSON(filepath.Dir(path), &got); !there || err == nil {
		t.Errorf("a folder: %v, %v", there, err)
	}
}

// A link is to the file itself, not to a symbolic link to it; a copy ends with the context.
func TestLinkOrCopy(t *testing.T) {
	dir := t.TempDir()
	from, link, to := filepath.Join(dir, "from"), filepath.Join(dir, "link"), filepath.Join(dir, "to")
	filetest.Write(t, from, "content")
	if err := os.Symlink(from, link); err != nil {
		t.Skip(err)
	}
	if copied, err := LinkOrCopy(t.Context(), link, to); copied || err != nil {
		t.Fatal(copied, err)
	}
	a, _ := os.Stat(from)
	if b, err := os.Lstat(to); err != nil || !os.SameFile(a, b) {
		t.Errorf("%v is not the same file, %v", b, err)
	}
	if copied, err := LinkOrCopy(t.Context(), from, to); !copied || err != nil { // no link over a file that is there
		t.Errorf("%v, %v", copied, err)
	}
	b, err := os.Stat(to)
	if text, _ := os.ReadFile(to); err != nil || os.SameFile(a, b) || string(text) != "content" {
		t.Errorf("the copy is %q, %v", text, err)
	}
	ctx, cancel := context.WithCancelCause(t.Context())
	stopped := errors.New("stopped")
	cancel(stopped)
	if _, err := LinkOrCopy(ctx, from, to); !errors.Is(err, stopped) {
		t.Errorf("%v", err)
	}
	if _, err := (Reader{ctx, strings.NewReader("x")}).Read(make([]byte, 1)); !errors.Is(err, stopped) {
		t.Errorf("%v", err)
	}
	if text, err := io.ReadAll(Reader{t.Context(), strings.NewReader("x")}); err != nil || string(text) != "x" {
		t.Errorf("%q, %v", text, err)
	}
}

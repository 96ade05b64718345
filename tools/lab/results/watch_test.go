package results

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"promptfed/runtime/filetest"
	"promptfed/runtime/goldentest"
)

// A cache rereads exactly the changed runs. The fingerprint changes with every relevant file and with no other file.
func TestCacheAndStamp(t *testing.T) {
	dir := t.TempDir()
	var c Cache
	if _, err := c.Load(dir); !errors.Is(err, ErrNoRuns) {
		t.Fatalf("an empty folder: %v", err)
	}
	stamp := Fingerprint(dir)
	write := func(name, text string) {
		t.Helper()
		filetest.Write(t, filepath.Join(dir, name), text)
	}
	changed := func(what string, want bool) {
		t.Helper()
		if now := Fingerprint(dir); (now != stamp) != want {
			t.Errorf("after %s the stamp changed: %v", what, now != stamp)
		} else {
			stamp = now
		}
	}
	const line = `{"format":2,"round":0,"loss":1,"tested":false}` + "\n"
	write("a/config.yaml", "name: a\nmethod: coop\n")
	write("a/rounds.jsonl", line)
	write("b/config.yaml", "name: b\nmethod: coop\n")
	write("b/rounds.jsonl", line)
	changed("two runs", true)
	write("a/experiment.json", "{}")
	changed("an identity", true)
	goldentest.NoError(t, os.Remove(filepath.Join(dir, "a/experiment.json")))
	changed("its removal", true)
	changed("nothing", false)
	write("a/checkpoint/server.safetensors", "x")
	write("a/report.html", "x")
	changed("files that are not shown", false)
	load := func() (a, b *Run) {
		t.Helper()
		all, err := c.Load(dir)
		if err != nil || len(all.Groups) != 2 {
			t.Fatal(all, err)
		}
		return all.Groups[0].Runs[0], all.Groups[1].Runs[0]
	}
	a, b := load()
	if a2, b2 := load(); a2 != a || b2 != b {
		t.Error("runs were read again though nothing changed")
	}
	write("a/rounds.jsonl", line+`{"format":2,"round":1,"loss":1,"tested":false}`+"\n")
	changed("a round", true)
	a3, b3 := load()
	if a3 == a || b3 != b || len(a3.Rounds) != 2 {
		t.Errorf("after a round of a: %d rounds, b read again: %v", len(a3.Rounds), b3 != b)
	}
	goldentest.NoError(t, b3.Tag([]string{"good", "best"}, nil))
	changed("tags", true)
	if _, b4 := load(); !slices.Equal(b4.Tags, []string{"best", "good"}) {
		t.Errorf("tags %v", b4.Tags)
	}
	goldentest.NoError(t, os.Chtimes(filepath.Join(dir, "b/config.yaml"), time.Time{}, time.Now().Add(time.Hour)))
	changed("a file's time", true)
	for _, bad := range []string{"", "a b", "a,b", "a|b", "\x01"} {
		if err := b.Tag([]string{bad}, nil); err == nil {
			t.Errorf("the tag %q was taken", bad)
		}
	}
	write("b/tags.json", `["a b"]`)
	if all, err := c.Load(dir); err != nil || len(all.Notes) != 2 || len(all.Groups[1].Runs[0].Tags) != 0 {
		t.Errorf("a tag that is none: %+v, %v", all.Notes, err)
	}
	changed("such tags", true)
	write("a/in/config.yaml", "")
	write("a/in/rounds.jsonl", line)
	changed("a run below a run", true)
}

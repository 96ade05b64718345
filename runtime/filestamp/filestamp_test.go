package filestamp

import (
	"os"
	"path/filepath"
	"runtime"
	"testing"
	"time"

	"promptfed/runtime/busytest"
	"promptfed/runtime/filetest"
	"promptfed/runtime/goldentest"
)

func stat(t *testing.T, path string) os.FileInfo {
	t.Helper()
	st, err := os.Stat(path)
	goldentest.NoError(t, err)
	return st
}

// The stamp changes if the content changes at the same size and with the old modification time, and if another file
// takes its place. A renamed file keeps its stamp.
func TestOf(t *testing.T) {
	path := filepath.Join(t.TempDir(), "f")
	write := func(text string) {
		filetest.Write(t, path, text)
	}
	write("one")
	before := stat(t, path)
	if Of(before) != Of(stat(t, path)) {
		t.Error("the stamp of an unchanged file changes")
	}
	probe := path + "3"
	busytest.Until(t, "a later time of the file system", func() bool {
		filetest.Write(t, probe, "")
		return Settled(before, stat(t, probe).ModTime())
	})
	write("two")
	if Of(stat(t, path)) == Of(before) {
		t.Error("a change keeps the stamp")
	}
	if runtime.GOOS != "linux" && runtime.GOOS != "darwin" {
		t.Skip("the system does not tell more")
	}
	goldentest.NoError(t, os.Chtimes(path, before.ModTime(), before.ModTime()))
	changed := stat(t, path)
	if !changed.ModTime().Equal(before.ModTime()) || Of(changed) == Of(before) {
		t.Error("with its modification time set back, a changed file has the old stamp")
	}
	goldentest.NoError(t, os.Chtimes(path, time.Time{}, before.ModTime().Add(-time.Hour)))
	if Settled(stat(t, path), before.ModTime()) {
		t.Error("with its modification time set back, a changed file is settled")
	}
	other := path + "2"
	goldentest.NoError(t, os.Rename(path, other))
	write("two")
	goldentest.NoError(t, os.Chtimes(path, before.ModTime(), before.ModTime()))
	if Of(stat(t, path)) == Of(stat(t, other)) {
		t.Error("two files have one stamp")
	}
}

type times struct {
	os.FileInfo
	at time.Time
}

func (x times) ModTime() time.Time { return x.at }
func (x times) Sys() any           { return nil }

// The limits are those in the comment at Settled.
func TestSettled(t *testing.T) {
	whole := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	for _, c := range []struct {
		at   time.Time
		age  time.Duration
		want bool
	}{
		{whole, 1900 * time.Millisecond, false}, {whole, 2100 * time.Millisecond, true},
		{whole.Add(1), 40 * time.Millisecond, false}, {whole.Add(1), 60 * time.Millisecond, true},
		{whole, 2 * time.Second, false}, {whole.Add(1), 50 * time.Millisecond, false},
		{whole.Add(10 * time.Millisecond), 1900 * time.Millisecond, false},
		{whole, -time.Hour, false}, {whole.Add(1), -time.Hour, false}, // the file's clock is ahead
	} {
		if got := Settled(times{at: c.at}, c.at.Add(c.age)); got != c.want {
			t.Errorf("%v after %v: %t", c.age, c.at, got)
		}
	}
}

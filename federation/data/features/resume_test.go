package features_test

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"errors"
	"io/fs"
	"maps"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"promptfed/federation/data"
	"promptfed/federation/data/features"
	"promptfed/federation/method"
	"promptfed/runtime/busytest"
	"promptfed/runtime/filetest"
	"promptfed/runtime/goldentest"
	"promptfed/runtime/ort"
)

// shardsIn reads the shards of a feature cache by their paths.
func shardsIn(t *testing.T, dir string) map[string]string {
	t.Helper()
	out := map[string]string{}
	err := filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() || !strings.HasSuffix(path, ".rows") {
			return err
		}
		raw, err := os.ReadFile(path)
		out[strings.TrimPrefix(path, dir)] = string(raw)
		return err
	})
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		t.Fatal(err)
	}
	return out
}

// TestStopped: a run that ends in the middle, as after Ctrl-C, leaves whole shards of 64 images (shardRows). The next
// run computes the missing images, also those of a shard that is lost, and counts the others as done. On a device,
// batches of 128 images fill two shards, and the one with image 140 is complete.
func TestStopped(t *testing.T) {
	b, list := small(t), images(t, 400)
	for name, c := range map[string]struct {
		session ort.Options
		shards  int
	}{"host": {ort.Options{Provider: ort.CPU}, 2}, "device": {bound(1), 4}, "devices": {bound(2), 4}} {
		dir := t.TempDir()
		ctx, stop := context.WithCancel(t.Context())
		defer stop()
		begun, last := 0, 0
		x := features.Extractor{Cache: data.Cache{Dir: dir}, Session: c.session, Workers: 2,
			Progress: func(_ string, done, total int) {
				begun, last = cmp.Or(begun, done), done
				if done == 140 {
					stop()
				}
			}}
		r := features.Request{Bundle: b, List: list, What: method.ImageInput}
		if _, err := x.Rows(ctx, r); !errors.Is(err, context.Canceled) {
			t.Fatalf("%s: stopped with %v", name, err)
		}
		if n := len(shardsIn(t, dir)); n != c.shards || begun != 1 {
			t.Errorf("%s: %d shards are left, and images from number %d on were computed", name, n, begun)
		}
		goldentest.NoError(t, os.Remove(dir+slices.Min(slices.Collect(maps.Keys(shardsIn(t, dir))))))
		begun = 0
		extract(t, x, b, list, 1)
		if begun != 64*(c.shards-1)+1 || last != 400 {
			t.Errorf("%s: the next run counts from %d to %d", name, begun, last)
		}
		whole := t.TempDir()
		extract(t, features.Extractor{Cache: data.Cache{Dir: whole}, Session: c.session}, b, list, 1)
		if !maps.Equal(shardsIn(t, dir), shardsIn(t, whole)) {
			t.Errorf("%s: a run that was stopped leaves other bytes", name)
		}
	}
}

// TestKilled kills processes that compute features with kill -9, each a random time after a new shard appeared. The
// next processes use their shards, and the final files equal those of an uninterrupted run. A process waits for its
// death before it has computed all.
func TestKilled(t *testing.T) {
	const env, envImages = "PROMPTFED_TEST_FEATURES", "PROMPTFED_TEST_IMAGES"
	list := func(dir string) []data.Example {
		paths, err := filepath.Glob(filepath.Join(dir, "*.png"))
		goldentest.NoError(t, err)
		return files(t, paths...)
	}
	if dirs := filepath.SplitList(os.Getenv(env)); len(dirs) == 2 {
		left, err := strconv.Atoi(os.Getenv(envImages))
		goldentest.NoError(t, err)
		// slow enough to be killed within a shard
		x := features.Extractor{Cache: data.Cache{Dir: dirs[0]}, Workers: 1,
			Progress: func(string, int, int) {
				busytest.Delay(200 * time.Microsecond)
				if left--; left == 0 {
					busytest.Delay(time.Hour)
				}
			}}
		for _, what := range []string{method.ImageInput, method.PixelsInput} {
			rows, err := x.Rows(context.Background(), features.Request{Bundle: small(t),
				List: list(dirs[1]), Views: 2, What: what})
			goldentest.NoError(t, err)
			for _, r := range rows {
				r.Close()
			}
		}
		return
	}
	cache, whole, from := t.TempDir(), t.TempDir(), filepath.Dir(images(t, 300)[0].Name())
	var said bytes.Buffer
	temporary := "TMPDIR=" + t.TempDir()                            // a killed child cannot remove it
	child := func(dir string, images int) (*exec.Cmd, chan error) { // 0 images: all
		said.Reset()
		cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestKilled$")
		cmd.Env = append(os.Environ(), env+"="+dir+string(filepath.ListSeparator)+from, temporary,
			envImages+"="+strconv.Itoa(images))
		cmd.Stdout, cmd.Stderr = &said, &said
		goldentest.NoError(t, cmd.Start())
		ended := make(chan error, 1)
		go func() { ended <- cmd.Wait() }()
		return cmd, ended
	}
	if _, ended := child(whole, 0); <-ended != nil {
		t.Fatalf("a run that nobody kills fails:\n%s", &said)
	}
	want := shardsIn(t, whole)
	if len(want) != 4*5 { // 2 views of 2 kinds, each 300 images in shards of 64
		t.Fatalf("%d shards", len(want))
	}
	for _, shards := range []int{0, 1, 3, 6, 9, 14} {
		before := shardsIn(t, cache)
		cmd, ended := child(cache, 64*(shards+2-len(before)))
		busytest.Until(t, "a shard", func() bool { return len(shardsIn(t, cache)) >= shards || len(ended) > 0 })
		busytest.Delay(rand.N(15 * time.Millisecond))
		cmd.Process.Kill()
		if err := <-ended; err == nil || err.Error() != "signal: killed" {
			t.Fatalf("a resumed run ended before it was killed: %v\n%s", err, &said)
		}
		after := shardsIn(t, cache)
		for path, raw := range before {
			if after[path] != raw {
				t.Errorf("%s was lost or changed", path)
			}
		}
	}
	if _, ended := child(cache, 0); <-ended != nil {
		t.Fatalf("the last resumed run failed:\n%s", &said)
	}
	if got := shardsIn(t, cache); !maps.Equal(got, want) {
		t.Errorf("after the kills the cache holds other files or bytes: %d files, want %d", len(got), len(want))
	}
}

// TestStorage: pixels of 150 images [3,8,8] in half precision take 150*3*64*2 bytes and 200 more for each of 3 shards:
// 8 and a header of 157 or 158, padded to a multiple of 8, and 32 of SHA-256 (rows.go). A disk with less space is
// refused before anything is computed, and a disk with enough space is accepted. Hashes of images that are known are
// not computed again, so the cache keeps none.
func TestStorage(t *testing.T) {
	b, list, dir := small(t), images(t, 150), t.TempDir()
	for i := range list {
		list[i].ContentHash = sha256.Sum256(filetest.Read(t, list[i].Path))
	}
	size := b.Preprocess.Size
	want := int64(150*3*size*size*2 + 3*(168+32))
	left := want + 64<<20 - 1
	x := features.Extractor{Cache: data.Cache{Dir: dir}}
	storage := func(r ...features.Request) (features.Storage, error) {
		return features.StorageWith(x, t.Context(), r, func(at string) (int64, bool) {
			if at != dir {
				t.Errorf("asked for the space of %s", at)
			}
			return left, true
		})
	}
	r := features.Request{Bundle: b, List: list, What: method.PixelsInput}
	s, err := storage(r, r)
	if err == nil || !strings.Contains(err.Error(), "pixels of 150 images 0.00 GB") ||
		!strings.Contains(err.Error(), "0.07 GB are free") || !strings.Contains(err.Error(), "runtime.cache") {
		t.Errorf("a full disk: %v", err)
	}
	if len(s.Missing) != 1 || s.Missing[0].Bytes != want || s.Missing[0].Images != 150 {
		t.Errorf("needs %+v, want %d bytes", s.Missing, want)
	}
	left++
	if _, err := storage(r); err != nil {
		t.Errorf("a disk with room: %v", err)
	}
	rows, err := x.Rows(context.Background(), r)
	goldentest.NoError(t, err)
	defer rows[0].Close()
	taken := 0
	for _, raw := range shardsIn(t, dir) {
		taken += len(raw)
	}
	left = 0
	s, wrong := storage(r)
	if wrong != nil || len(s.Missing) != 0 || int64(taken) != want {
		t.Errorf("features that are there: %v, %+v; they take %d bytes", wrong, s.Missing, taken)
	}
	if s.Large() || !(features.Storage{Bytes: 2e8}).Large() {
		t.Error("what is worth a line")
	}
	if _, err := os.Stat(filepath.Join(dir, "contents")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("known hashes are computed: %v", err)
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	list[0].ContentHash = data.ContentHash{1}
	r.List = list[:1]
	if _, err := x.Storage(ended, []features.Request{r}); !errors.Is(err, context.Canceled) {
		t.Errorf("stopped: %v", err)
	}
}

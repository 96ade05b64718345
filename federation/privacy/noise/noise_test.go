package noise

import (
	"bytes"
	"crypto/hmac"
	"crypto/sha256"
	"errors"
	"os"
	"path/filepath"
	"testing"

	"promptfed/runtime/filetest"
	"promptfed/runtime/goldentest"
)

func open(t *testing.T, path, run string) *Noise {
	t.Helper()
	n, err := Open(path, run, false)
	goldentest.NoError(t, err)
	return n
}

// A run keeps its key, in a file that only its owner reads. Another run, and a file that lacks a whole key or the
// releases, get a new one. A damaged file is refused.
func TestOpenKeepsTheKeyOfARun(t *testing.T) {
	path := filepath.Join(t.TempDir(), "noise.json")
	n := open(t, path, "a")
	if st, err := os.Stat(path); err != nil || st.Mode().Perm() != 0o600 {
		t.Errorf("%v, %v", st, err)
	}
	if len(n.Key) != 32 || !bytes.Equal(open(t, path, "a").Key, n.Key) {
		t.Errorf("the key %x is not kept", n.Key)
	}
	if same, err := Open(path, "a", true); err != nil || !bytes.Equal(same.Key, n.Key) {
		t.Errorf("the key %x of a run that goes on: %v", same.Key, err)
	}
	_, err := Open(path, "b", true)
	goldentest.WantError(t, err, path+" is missing or of another run")
	if other := open(t, path, "b"); bytes.Equal(other.Key, n.Key) || len(other.Key) != 32 {
		t.Errorf("run b has the key %x; run a has %x", other.Key, n.Key)
	}
	for _, text := range []string{`{"run":"a","key":"AAAA","released":{}}`,
		`{"run":"a","key":"AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA="}`} {
		filetest.Write(t, path, text)
		if n := open(t, path, "a"); len(n.Key) != 32 || bytes.Equal(n.Key, make([]byte, 32)) || n.Released == nil {
			t.Errorf("%s is taken", text)
		}
	}
	filetest.Write(t, path, "{")
	_, err = Open(path, "a", false)
	goldentest.WantError(t, err, path)
	if open(t, "", "a"); len(open(t, "", "a").Key) != 32 {
		t.Error("no key without a file")
	}
}

// The key of client 3 is HMAC-SHA256 of the words client/3.
func TestClientKeyIsDerived(t *testing.T) {
	n := open(t, "", "a")
	h := hmac.New(sha256.New, n.Key)
	h.Write([]byte("client/3"))
	if got := n.Client(3).Key; !bytes.Equal(got, h.Sum(nil)) {
		t.Errorf("%x", got)
	}
}

// A release that is repeated, also after a restart, has the same noise and counts once. Other numbers, rounds and
// layers have other noise. With once, a second release of a layer in a round is refused.
func TestReleases(t *testing.T) {
	path := filepath.Join(t.TempDir(), "noise.json")
	drawn := map[uint64]string{}
	release := func(say string, round int, once bool, layer, numbers string, again bool, count int) {
		t.Helper()
		r, n, err := open(t, path, "a").ForRound(round, once)(layer, []byte(numbers))
		if err != nil || n != count {
			t.Errorf("%s: %d releases, want %d; %v", say, n, count, err)
			return
		}
		x := r.Uint64()
		if old, ok := drawn[x]; ok != again {
			t.Errorf("%s: the noise is that of %q", say, old)
		}
		drawn[x] = say
	}
	release("first", 1, true, "dp", "x", false, 1)
	release("repeated", 1, true, "dp", "x", true, 1)
	release("other layer", 1, true, "dpfpl", "x", false, 1)
	release("layer whose name begins alike", 1, true, "d", "x", false, 1)
	release("other round", 2, true, "dp", "x", false, 1)
	release("other numbers", 2, false, "dp", "y", false, 2)
	release("repeated of two", 2, true, "dp", "x", true, 2)
	if _, _, err := open(t, path, "a").ForRound(1, true)("dp", []byte("z")); !errors.Is(err, errReleased) {
		t.Errorf("a second release: %v", err)
	}
}

// A release that cannot be recorded gives no noise and is not counted.
func TestReleaseWithoutAFile(t *testing.T) {
	dir := t.TempDir()
	n := open(t, filepath.Join(dir, "noise.json"), "a")
	n.path = filepath.Join(dir, "none", "noise.json")
	if r, _, err := n.ForRound(1, true)("dp", []byte("x")); err == nil || r != nil || len(n.Released[1]) != 0 {
		t.Errorf("%v, %v, %v", r, err, n.Released)
	}
}

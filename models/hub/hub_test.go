package hub

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"promptfed/models/bundle"
	"promptfed/models/bundle/converted"
	"promptfed/models/hub/hubtest"
	"promptfed/runtime/busytest"
	"promptfed/runtime/filetest"
	"promptfed/runtime/goldentest"
)

// checkpointDir holds a small CLIP that transformers wrote, with random weights of 50,676 bytes.
const checkpointDir = "../bundle/converted/testdata/transformers"

func TestMain(m *testing.M) {
	bundle.RegisterFormat(converted.Format(nil))
	os.Exit(m.Run())
}

// serve starts a hub and sets an environment without caches, whose HF_ENDPOINT is the hub.
func serve(t *testing.T) *hubtest.Server {
	t.Helper()
	for _, pair := range os.Environ() {
		if name, _, _ := strings.Cut(pair, "="); strings.HasPrefix(name, "HF_") || strings.HasPrefix(name, "HUGGING") {
			t.Setenv(name, "")
		}
	}
	home := t.TempDir()
	t.Setenv("HOME", home)
	t.Setenv("XDG_CACHE_HOME", filepath.Join(home, "cache"))
	s := hubtest.New(t, checkpointDir)
	t.Setenv("HF_ENDPOINT", s.Hub.URL+"/")
	return s
}

func client(t *testing.T) *Hub {
	t.Helper()
	h, err := New()
	goldentest.NoError(t, err)
	h.pause = time.Millisecond
	return h
}

// pipes is a listener in memory, whose connections also work in a bubble.
type pipes chan net.Conn

func (p pipes) Accept() (net.Conn, error) {
	if c, ok := <-p; ok {
		return c, nil
	}
	return nil, net.ErrClosed
}

func (p pipes) Close() error { close(p); return nil }

func (p pipes) Addr() net.Addr { return &net.TCPAddr{} }

// inBubble returns a client of a hub whose connections are pipes, until the test in a bubble ends.
func inBubble(t *testing.T, s *hubtest.Server) *Hub {
	listeners := map[string]pipes{}
	for _, host := range []*httptest.Server{s.Hub, s.CDN} {
		l, server := make(pipes), http.Server{Handler: host.Config.Handler}
		listeners[host.Listener.Addr().String()] = l
		go server.Serve(l)
		t.Cleanup(func() { server.Close() })
	}

	h := client(t)
	transport := &http.Transport{ResponseHeaderTimeout: h.stall}
	transport.DialContext = func(ctx context.Context, network, to string) (net.Conn, error) {
		own, other := net.Pipe()
		listeners[to] <- other
		return own, nil
	}
	t.Cleanup(transport.CloseIdleConnections)
	h.client.Transport = authorized{h, transport}
	return h
}

func silent(string, int64, int64) {}

// pull pulls a model of the hub.
func pull(t *testing.T, h *Hub, name string) (*bundle.Bundle, error) {
	t.Helper()
	m, err := Parse(name)
	goldentest.NoError(t, err)
	b, _, err := h.Pull(context.Background(), m, silent)
	return b, err
}

// refused checks that an error is one line with all parts, and without token and signature.
func refused(t *testing.T, err error, parts ...string) {
	t.Helper()
	if err == nil {
		t.Fatalf("no error; want %q", parts)
	}
	for _, p := range parts {
		if !strings.Contains(err.Error(), p) {
			t.Errorf("%q is not in %v", p, err)
		}
	}
	for _, p := range []string{"\n", hubtest.Token, "signature"} {
		if strings.Contains(err.Error(), p) {
			t.Errorf("%q is in %v", p, err)
		}
	}
}

// paths lists the files below a folder, with the targets of links.
func paths(t *testing.T, dir string) (out []string) {
	t.Helper()
	err := filepath.WalkDir(dir, func(path string, e os.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return err
		}
		rel, _ := filepath.Rel(dir, path)
		if to, err := os.Readlink(path); err == nil {
			rel += " -> " + to
		}
		out = append(out, rel)
		return nil
	})
	goldentest.NoError(t, err)
	return out
}

const weights = "model.safetensors"

// Pull makes the bundle that Convert makes of the folder, in the cache's layout of huggingface_hub (names compared with
// what huggingface_hub 2.4.0 wrote), of the needed files alone. The second time it reads the answer about the
// repository only.
func TestPull(t *testing.T) {
	s := serve(t)
	h := client(t)
	b, err := pull(t, h, "ORG/NAME")
	goldentest.NoError(t, err)
	want, err := converted.Convert(checkpointDir, filepath.Join(t.TempDir(), "small"), converted.Options{})
	goldentest.NoError(t, err)
	if b.Digest() != want.Digest() {
		t.Error("the bundle differs from that of the folder")
	}
	if o := (bundle.Origin{Source: "ORG/NAME", Revision: hubtest.Commit, License: "mit"}); b.Origin != o {
		t.Errorf("origin %v, want %v", b.Origin, o)
	}
	if found, err := bundle.Find("hf:ORG/NAME"); err != nil || found.Name != "ORG--NAME" || found.Origin != b.Origin {
		t.Errorf("%v, %v", found, err)
	}
	var layout []string
	for _, name := range []string{"config.json", weights} {
		to, err := os.Readlink(filepath.Join(h.cache, "models--ORG--NAME/snapshots", hubtest.Commit, name))
		goldentest.NoError(t, err)
		layout = append(layout, fmt.Sprint(name, " ", filepath.Dir(to), " ", len(filepath.Base(to))))
	}
	if d := cmp.Diff([]string{"config.json ../../blobs 40", weights + " ../../blobs 64"}, layout); d != "" {
		t.Error(d)
	}
	if ref, err := os.ReadFile(filepath.Join(h.cache, "models--ORG--NAME/refs/main")); string(ref) != hubtest.Commit {
		t.Errorf("ref %q, %v", ref, err)
	}
	plain, err := os.Create(filepath.Join(t.TempDir(), "plain"))
	goldentest.NoError(t, err)
	defer plain.Close()
	usual, err := plain.Stat()
	goldentest.NoError(t, err)
	locks, _ := filepath.Glob(filepath.Join(h.cache, ".locks/models--ORG--NAME/*.lock"))
	for _, path := range locks {
		if st, err := os.Stat(path); err != nil || st.Mode() != usual.Mode() {
			t.Errorf("a lock has mode %v, other files have %v: %v", st.Mode(), usual.Mode(), err)
		}
	}
	if len(locks) == 0 {
		t.Error("no locks of huggingface_hub")
	}
	if list := strings.Join(paths(t, h.cache), " "); strings.Contains(list, "README") || strings.Contains(list, "h5") {
		t.Errorf("files without use were fetched: %s", list)
	}
	before := len(s.Requests)
	again, err := pull(t, h, "hf:ORG/NAME")
	if err != nil || again.Digest() != b.Digest() || len(s.Requests) != before+1 {
		t.Errorf("%v, requests %v", err, s.Requests[before:])
	}
	filetest.Write(t, filepath.Join(b.Dir, "image.onnx"), "x")
	if again, err = pull(t, h, "ORG/NAME"); err != nil || again.Verify() != nil || s.Asked("GET /"+weights) != 1 {
		t.Errorf("a damaged bundle is not made again of the files in the cache: %v, %v", err, s.Requests)
	}
}

// A revision is a branch, a tag or a commit; it has its own bundle.
func TestRevision(t *testing.T) {
	serve(t)
	h := client(t)
	for name, want := range map[string]string{"ORG/NAME@v1/x": "ORG--NAME@v1--x",
		"hf:ORG/NAME@" + hubtest.Commit: "ORG--NAME@0123456789ab"} {
		if b, err := pull(t, h, name); err != nil || b.Name != want {
			t.Errorf("%s: %v, %v", name, b, err)
		}
	}
	if ref, err := os.ReadFile(filepath.Join(h.cache, "models--ORG--NAME/refs/v1/x")); string(ref) != hubtest.Commit {
		t.Errorf("ref %q, %v", ref, err)
	}
	if refs := paths(t, filepath.Join(h.cache, "models--ORG--NAME/refs")); len(refs) != 1 {
		t.Errorf("refs %v", refs)
	}
	_, err := pull(t, h, "ORG/NAME@v2")
	refused(t, err, "hf:ORG/NAME@v2: the hub has no such revision (404 Not Found): give a branch")
}

// A cut download is continued at once, and by the next call after too many cuts; a server without ranges sends the
// whole file; a wrong part of an earlier call is fetched again.
func TestResume(t *testing.T) {
	s := serve(t)
	s.CutAfter = 5000
	_, err := pull(t, client(t), "ORG/NAME")
	refused(t, err, "model.safetensors of ORG/NAME: ", "the connection broke at 25000 of 50676 bytes, which are kept")
	if n := s.Asked("GET /" + weights); n != attempts {
		t.Errorf("%d attempts", n)
	}
	s.CutAfter = 15000
	if _, err := pull(t, client(t), "ORG/NAME"); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"bytes=5000-", "bytes=25000-", "bytes=40000-"} {
		if s.Asked("GET /"+weights+" "+want) != 1 {
			t.Errorf("%s is not among %v", want, s.Requests)
		}
	}
	s.CutAfter = 0
	for what, c := range map[string]struct {
		ranges bool
		part   string
		gets   int
	}{
		"server without ranges": {false, strings.Repeat("x", 100), 1},
		"wrong part":            {true, strings.Repeat("x", 100), 2},
		"too long part":         {true, strings.Repeat("x", 60000), 1},
		"whole wrong part":      {true, strings.Repeat("x", 50676), 1},
	} {
		t.Run(what, func(t *testing.T) {
			s := serve(t)
			h := client(t)
			s.NoRanges = !c.ranges
			blob := blobOf(t, s, h, weights)
			filetest.Write(t, blob+".incomplete", c.part)
			if _, err := pull(t, h, "ORG/NAME"); err != nil {
				t.Fatal(err)
			}
			if n := s.Asked("GET /" + weights); n != c.gets {
				t.Errorf("%d requests for the weights, want %d: %v", n, c.gets, s.Requests)
			}
		})
	}
}

// A server that states no sizes is as good as another; a whole part is asked for again then.
func TestWithoutSizes(t *testing.T) {
	s := serve(t)
	s.Head = func(name string, h http.Header) {
		if h.Del("X-Linked-Size"); name == weights {
			h.Set("Content-Length", "7") // of the answer itself
		}
	}
	h := client(t)
	blob := blobOf(t, s, h, weights)
	filetest.Write(t, blob+".incomplete", s.Files[weights])
	if _, err := pull(t, h, "ORG/NAME"); err != nil || s.Asked("GET /"+weights) != 2 {
		t.Errorf("%v, %v", err, s.Requests)
	}
	s.Files[weights][0] ^= 1
	s.CutAfter = 1000
	_, err := pull(t, h, "ORG/NAME@v1/x")
	refused(t, err, "the connection broke at 5000 of 50676 bytes")
}

// blobOf returns the path of a file's content in the cache.
func blobOf(t *testing.T, s *hubtest.Server, h *Hub, name string) string {
	t.Helper()
	n, _ := bundle.ParseHubName("ORG/NAME")
	snap := &snapshot{hub: h, name: n, commit: hubtest.Commit}
	f, err := snap.ask(context.Background(), name)
	goldentest.NoError(t, err)
	return filepath.Join(snap.folder(), "blobs", f.sum)
}

// A connection without a byte for a long time is given up, and the download continues on another one. This also holds
// for answers about the repository and for refusals.
func TestStalled(t *testing.T) {
	statuses := []int{http.StatusOK, http.StatusServiceUnavailable, http.StatusOK}
	for i, path := range []string{"/" + weights, "/" + weights, "/api/models/ORG/NAME/revision/main"} {
		s := serve(t)
		synctest.Test(t, func(t *testing.T) {
			h := inBubble(t, s)
			var once atomic.Bool
			s.Refuse = func(w http.ResponseWriter, r *http.Request) bool {
				if r.URL.Path != path || once.Swap(true) {
					return false
				}
				w.Header().Set("Content-Length", "50676")
				w.WriteHeader(statuses[i])
				w.Write(s.Files[weights][:1000])
				w.(http.Flusher).Flush()
				<-r.Context().Done()
				return true
			}
			began := time.Now()
			_, err := pull(t, h, "ORG/NAME")
			took := time.Since(began)
			if err != nil || s.Asked("GET "+path) != 2 || took < h.stall || took > 2*h.stall {
				t.Errorf("%s: %v after %v, %v", path, err, took, s.Requests)
			}
		})
	}
}

// Content with a wrong checksum is refused, and not kept. Damage in the cache is found and mended.
func TestDamage(t *testing.T) {
	s := serve(t)
	for name, sum := range map[string]string{weights: "SHA-256", "vocab.json": "SHA-1"} {
		s.Content = func(n string, data []byte) []byte {
			if n == name {
				data = bytes.Clone(data)
				data[len(data)/2] ^= 1
			}
			return data
		}
		t.Setenv("XDG_CACHE_HOME", t.TempDir())
		h := client(t)
		_, err := pull(t, h, "ORG/NAME")
		refused(t, err, name+" of ORG/NAME: wrong content: "+sum, "nothing was kept: try again")
		if blob := blobOf(t, s, h, name); exists(blob) || exists(blob+".incomplete") {
			t.Errorf("%s was kept", blob)
		}
	}
	s.Content = nil
	h := client(t)
	b, err := pull(t, h, "ORG/NAME")
	goldentest.NoError(t, err)
	goldentest.NoError(t, os.RemoveAll(b.Dir))
	blob := blobOf(t, s, h, weights)
	filetest.Write(t, blob, "damaged")
	t.Setenv("HF_HUB_OFFLINE", "1")
	_, err = pull(t, client(t), "ORG/NAME")
	refused(t, err, blob, "SHA-256", "of 7 bytes", "remove it, and repeat the command with a network")
	t.Setenv("HF_HUB_OFFLINE", "")
	if _, err := pull(t, h, "ORG/NAME"); err != nil {
		t.Error(err)
	}
}

func exists(path string) bool {
	_, err := os.Lstat(path)
	return err == nil
}

// The token of HF_TOKEN or of the file goes to the hub and to no other host, not even one below the hub's.
func TestToken(t *testing.T) {
	s := serve(t)
	s.NeedsToken = true
	_, err := pull(t, client(t), "ORG/NAME")
	refused(t, err, "the hub gives access to some accounts only (401 Unauthorized): accept the terms")
	address := map[string]string{"hub.test:80": s.Hub.Listener.Addr().String(),
		"cdn.hub.test:80": s.CDN.Listener.Addr().String()}
	s.CDN.URL = "http://cdn.hub.test"
	t.Setenv("HF_ENDPOINT", "http://hub.test")
	for _, where := range []string{"variable", "file"} {
		t.Setenv("HF_TOKEN", hubtest.Token)
		if where == "file" {
			t.Setenv("HF_TOKEN", "")
			t.Setenv("HF_HOME", t.TempDir())
			file := filepath.Join(os.Getenv("HF_HOME"), "token")
			filetest.Write(t, file, hubtest.Token+"\n")
		}
		t.Setenv("XDG_CACHE_HOME", t.TempDir())
		h := client(t)
		h.client.Transport = authorized{h, &http.Transport{DialContext: func(ctx context.Context, network, to string) (
			net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, network, address[to])
		}}}
		if _, err := pull(t, h, "ORG/NAME"); err != nil {
			t.Fatal(err)
		}
		if len(s.Leaked) > 0 || s.Asked("GET /"+weights) == 0 {
			t.Errorf("the network saw the token: %v", s.Leaked)
		}
	}
	h := client(t)
	for to, own := range map[string]bool{"http://hub.test/x": true, "https://hub.test/x": false,
		"http://hub.test:81/x": false, "http://hub.test.evil/x": false, "http://cdn.hub.test/x": false} {
		if u, _ := url.Parse(to); h.own(u) != own {
			t.Errorf("%s: own is %v", to, !own)
		}
	}
	for to, method := range map[string]string{"http://cdn.test/x": "GET", "https://cdn.test/x": "HEAD"} {
		from, _ := http.NewRequest(method, "https://hub.test/x", nil)
		r, _ := http.NewRequest(method, to, nil)
		if err := h.redirect(r, []*http.Request{from}); err == nil {
			t.Errorf("%s %s is followed", method, to)
		}
	}
}

// What a server says about files is not trusted.
func TestHostile(t *testing.T) {
	etag := func(key, value string) func(string, http.Header) {
		return func(name string, h http.Header) {
			if name == weights || key == "ETag" {
				h.Set(key, value)
			}
		}
	}
	answer := func(code int, header, text string) func(http.ResponseWriter, *http.Request) bool {
		return func(w http.ResponseWriter, r *http.Request) bool {
			if key, value, ok := strings.Cut(header, ": "); ok {
				w.Header().Set(key, value)
			}
			w.WriteHeader(code)
			w.Write([]byte(text))
			return true
		}
	}
	for what, c := range map[string]struct {
		change func(*hubtest.Server)
		want   string
	}{
		"commit with a path": {func(s *hubtest.Server) { s.Info = func(a map[string]any) { a["sha"] = "../../x" } },
			"does not answer like a hub of models: check HF_ENDPOINT"},
		"no commit": {func(s *hubtest.Server) { s.Info = func(a map[string]any) { delete(a, "sha") } },
			"does not answer like a hub of models"},
		"no JSON":    {func(s *hubtest.Server) { s.Refuse = answer(200, "", "<html>") }, "does not answer like a hub"},
		"list":       {func(s *hubtest.Server) { s.Refuse = answer(200, "", "[]") }, "does not answer like a hub"},
		"sum a path": {func(s *hubtest.Server) { s.Head = etag("X-Linked-Etag", "../../../x") }, "states no checksum"},
		"short sum":  {func(s *hubtest.Server) { s.Head = etag("ETag", `"0123"`) }, "states no checksum (ETag"},
		"no sum":     {func(s *hubtest.Server) { s.Head = etag("ETag", "") }, "states no checksum"},
		"huge": {func(s *hubtest.Server) { s.Head = etag("X-Linked-Size", "9000000000000000000") },
			"is it a CLIP?"},
		"over int64": {func(s *hubtest.Server) { s.Head = etag("X-Linked-Size", "99999999999999999999") },
			"states a wrong size"},
		"negative": {func(s *hubtest.Server) { s.Head = etag("X-Linked-Size", "-1") }, "states a wrong size"},
		"smaller":  {func(s *hubtest.Server) { s.Head = etag("X-Linked-Size", "50000") }, "more than the 50000 bytes"},
		"empty":    {func(s *hubtest.Server) { s.Head = etag("X-Linked-Size", "0") }, "more than the 0 bytes"},
		"other commit": {func(s *hubtest.Server) { s.Head = etag("X-Repo-Commit", strings.Repeat("f", 40)) },
			"answers with another commit"},
		"large configuration": {func(s *hubtest.Server) { s.Files["config.json"] = make([]byte, maxSmall+1) },
			"config.json of ORG/NAME: 67108865 bytes, at most 67108864 are fetched"},
		"redirects in a circle": {func(s *hubtest.Server) { s.Refuse = answer(302, "Location: /x", "") },
			"redirects that are not followed: more than 10"},
		"redirect to a file": {func(s *hubtest.Server) { s.Refuse = answer(302, "Location: file:///etc/passwd", "") },
			"unsupported protocol scheme"},
		"no checkpoint": {func(s *hubtest.Server) { delete(s.Files, weights) },
			"hf:ORG/NAME holds no checkpoint that promptfed reads: "},
		"no CLIP": {func(s *hubtest.Server) { s.Files["config.json"] = []byte(`{"model_type": "gpt2"}`) }, "gpt2"},
		"shard elsewhere": {func(s *hubtest.Server) {
			delete(s.Files, weights)
			s.Files["model.safetensors.index.json"] = []byte(`{"weight_map": {"a": "../../../../x.safetensors"}}`)
		}, "want the name of a file in the same folder"},
		"shard that is not there": {func(s *hubtest.Server) {
			delete(s.Files, weights)
			s.Files["model.safetensors.index.json"] = []byte(`{"weight_map": {"a": "x.safetensors"}}`)
		}, "the hub does not have this file (404 Not Found)"},
		"private": {func(s *hubtest.Server) { s.Refuse = answer(401, "X-Error-Code: RepoNotFound", "") },
			"the hub shows no such model (401 Unauthorized): check the name; a private one needs HF_TOKEN"},
		"forbidden": {func(s *hubtest.Server) { s.Refuse = answer(403, "", "") },
			"accept the terms on the model's page"},
		"teapot": {func(s *hubtest.Server) { s.Refuse = answer(418, "", "") }, "which is not expected"},
		"limited": {func(s *hubtest.Server) { s.Refuse = answer(429, "Retry-After: 0", "") },
			"limits the number of requests (429 Too Many Requests): wait some minutes, or set HF_TOKEN"},
		"out of order": {func(s *hubtest.Server) { s.Refuse = answer(503, "", "") },
			"503 Service Unavailable: try again"},
	} {
		t.Run(what, func(t *testing.T) {
			s := serve(t)
			c.change(s)
			h := client(t)
			_, err := pull(t, h, "ORG/NAME")
			refused(t, err, "ORG/NAME", c.want)
			for _, p := range paths(t, os.Getenv("HOME")) {
				if strings.Contains(p, "bundle.json") || strings.HasSuffix(p, "x.safetensors") {
					t.Errorf("%s was written", p)
				}
			}
		})
	}
}

// Names of files that lead elsewhere are never asked for and never written.
func TestHostileNames(t *testing.T) {
	s := serve(t)
	for _, name := range []string{"../config.json", "/etc/passwd", "a\x00b", "..", "snapshots/../../../tokenizer.json",
		`..\vocab.json`, "sub/config.json", strings.Repeat("x", 5000)} {
		s.Files[name] = []byte("evil")
	}
	s.License = "\x1b[31mevil"
	h := client(t)
	b, err := pull(t, h, "ORG/NAME")
	if err != nil || b.Origin.License != "" {
		t.Fatal(err, b)
	}
	for _, p := range paths(t, os.Getenv("HOME")) {
		text, err := os.ReadFile(filepath.Join(os.Getenv("HOME"), strings.Split(p, " -> ")[0]))
		if err != nil || string(text) == "evil" {
			t.Errorf("%s was written, %v", p, err)
		}
	}
}

// A busy server is asked again, after the pause that it wishes.
func TestBusy(t *testing.T) {
	s := serve(t)
	synctest.Test(t, func(t *testing.T) {
		h := inBubble(t, s)
		left := 1
		s.Refuse = func(w http.ResponseWriter, r *http.Request) bool {
			if left--; left < 0 {
				return false
			}
			w.Header().Set("Retry-After", "1")
			w.WriteHeader(http.StatusTooManyRequests)
			return true
		}
		began := time.Now()
		if _, err := pull(t, h, "ORG/NAME"); err != nil || time.Since(began) < time.Second {
			t.Errorf("%v after %v", err, time.Since(began))
		}
	})
}

// Without a network the files in huggingface_hub's cache are enough, also those that Python fetched; without them the
// error says what to do by hand.
func TestNoNetwork(t *testing.T) {
	serve(t)
	h := client(t)
	first, err := pull(t, h, "ORG/NAME")
	goldentest.NoError(t, err)
	t.Setenv("HF_ENDPOINT", "http://"+busytest.Address(t, "127.0.0.1"))
	for _, offline := range []string{"", "1"} {
		t.Setenv("HF_HUB_OFFLINE", offline)
		goldentest.NoError(t, os.RemoveAll(first.Dir))
		for _, name := range []string{"ORG/NAME", "ORG/NAME@" + hubtest.Commit} {
			m, err := Parse(name)
			goldentest.NoError(t, err)
			b, local, err := client(t).Pull(context.Background(), m, silent)
			if err != nil || !isUnreachable(local) || b.Digest() != first.Digest() ||
				!strings.Contains(b.Origin.String(), "licence: unknown") {
				t.Errorf("%s: %v, %v", name, local, err)
			}
		}
		h, tries := client(t), 0
		h.client.Transport = &http.Transport{DialContext: func(ctx context.Context, network, to string) (
			net.Conn, error) {
			tries++
			return new(net.Dialer).DialContext(ctx, network, to)
		}}
		if _, err = pull(t, h, "ORG/OTHER"); tries > 1 {
			t.Errorf("without a connection it asks %d times", tries)
		}
		want := "is not reachable ("
		if offline != "" {
			want = "HF_HUB_OFFLINE is set, so nothing is fetched"
		}
		refused(t, err, "hf:ORG/OTHER: ", want, "copy the model's folder here and use promptfed convert")
	}
	goldentest.NoError(t, os.Remove(filepath.Join(h.cache, "models--ORG--NAME/snapshots", hubtest.Commit, weights)))
	goldentest.NoError(t, os.RemoveAll(first.Dir))
	_, err = pull(t, client(t), "ORG/NAME")
	refused(t, err, "the cache has a part of it only", "no weights there")
}

// A full disk ends a pull with what to do. /dev/full takes no byte.
func TestFullDisk(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("no /dev/full")
	}
	s := serve(t)
	h := client(t)
	blob := blobOf(t, s, h, weights)
	filetest.Folder(t, filepath.Dir(blob))
	goldentest.NoError(t, os.Symlink("/dev/full", blob+".incomplete"))
	_, err := pull(t, h, "ORG/NAME")
	refused(t, err, "model.safetensors of ORG/NAME: ", "no space left on device: free space there, or set")
}

// Pulls at the same time fetch every file once, and all return the bundle.
func TestTwoPulls(t *testing.T) {
	s := serve(t)
	var wg sync.WaitGroup
	for range 4 {
		h := client(t)
		wg.Go(func() {
			m, _ := Parse("ORG/NAME")
			if b, _, err := h.Pull(context.Background(), m, silent); err != nil || b.Verify() != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if n := s.Asked("GET /" + weights); n != 1 {
		t.Errorf("the weights were fetched %d times", n)
	}
}

// A cancelled pull returns the cause at once, also while it waits for another one.
func TestCancelled(t *testing.T) {
	s := serve(t)
	ctx, stop := context.WithCancelCause(context.Background())
	why := errors.New("enough")
	s.Refuse = func(w http.ResponseWriter, r *http.Request) bool {
		if r.URL.Path == "/"+weights {
			stop(why)
		}
		return false
	}
	m, _ := Parse("ORG/NAME")
	if _, _, err := client(t).Pull(ctx, m, silent); !errors.Is(err, why) {
		t.Error(err)
	}
	s.Refuse = nil
	cache, err := bundle.CacheDir()
	goldentest.NoError(t, err)
	release, err := lock(context.Background(), filepath.Join(cache, "bundles", ".ORG--NAME.lock"))
	goldentest.NoError(t, err)
	ctx, stop = context.WithCancelCause(context.Background())
	go func() {
		busytest.Delay(200 * time.Millisecond)
		stop(why)
	}()
	if _, _, err := client(t).Pull(ctx, m, silent); !errors.Is(err, why) {
		t.Error(err)
	}
	release()
	if _, err := pull(t, client(t), "ORG/NAME"); err != nil {
		t.Error(err)
	}
}

// An archive comes from the server of archives, with the vocabulary of a repository, and is compared with the SHA-256
// in its address. Once it is here, no network is needed.
func TestArchive(t *testing.T) {
	s := serve(t)
	data := filetest.Read(t, "../bundle/converted/testdata/openai.pt")
	before, vocab := archives["RN50"], vocabulary
	defer func() { archives["RN50"], vocabulary = before, vocab }()
	const sum = "OPENAI"
	archives["RN50"], vocabulary = sum, bundle.HubName{Repository: "ORG/NAME"}
	s.Files["RN50.pt"] = data
	h := client(t)
	h.archives = s.CDN.URL
	m, err := Parse("RN50")
	goldentest.NoError(t, err)
	from := h.archive(m)
	_, err = from.fetch(context.Background(), silent)
	refused(t, err, "RN50.pt: wrong content: SHA-256", "expected "+sum)
	archives["RN50"] = filepath.Base(blobOf(t, s, h, "RN50.pt"))
	from = h.archive(m)
	folder, err := from.fetch(context.Background(), silent)
	if err != nil || !exists(filepath.Join(folder, "vocab.json")) || from.path != filepath.Join(os.Getenv("HOME"),
		".cache/clip/RN50.pt") {
		t.Fatal(folder, from.path, err)
	}
	gets := s.Asked("RN50.pt")
	if _, err := from.fetch(context.Background(), silent); err != nil || s.Asked("RN50.pt") != gets {
		t.Errorf("%v, a whole archive is fetched again: %v", err, s.Requests)
	}
	h.offline = true
	if got, err := from.fetch(context.Background(), silent); err != nil || got != folder {
		t.Errorf("without a network: %q, %v", got, err)
	}
	o := converted.Options{Vocab: folder, Origin: from.origin}
	o.Checkpoint.TextHeads, o.Checkpoint.VisionHeads = 2, 3 // of a tower that is too small for OpenAI's rule
	b, err := converted.Convert(from.path, filepath.Join(t.TempDir(), "RN50"), o)
	if err != nil || b.Origin.License != "mit" {
		t.Error(err)
	}
}

// A bundle of something else is not replaced.
func TestInTheWay(t *testing.T) {
	serve(t)
	h := client(t)
	cache, err := bundle.CacheDir()
	goldentest.NoError(t, err)
	own := filepath.Join(cache, "bundles", "ORG--NAME")
	if _, err := converted.Convert(checkpointDir, own, converted.Options{}); err != nil {
		t.Fatal(err)
	}
	_, err = pull(t, h, "ORG/NAME")
	refused(t, err, own+" is in the way, and not a bundle of ORG/NAME: rename it")
}

// Names are those of repositories, with a revision, and the known ones.
func TestParse(t *testing.T) {
	for text, want := range map[string]string{
		"clip-vit-base-patch16":      "hf:openai/clip-vit-base-patch16 openai--clip-vit-base-patch16",
		"hf:clip-vit-base-patch16@x": "hf:openai/clip-vit-base-patch16@x openai--clip-vit-base-patch16@x",
		"clip-vit-l-14-LAION2B-s32b-b82k": "hf:laion/CLIP-ViT-L-14-laion2B-s32B-b82K " +
			"laion--CLIP-ViT-L-14-laion2B-s32B-b82K",
		"google/siglip-base-patch16-224": "hf:google/siglip-base-patch16-224 google--siglip-base-patch16-224",
		"a/b@" + hubtest.Commit:          "hf:a/b@" + hubtest.Commit + " a--b@0123456789ab",
		"RN50":                           "RN50 RN50",
		"ViT-B/16":                       "ViT-B-16 ViT-B-16",
		"a/b@c/d1":                       "hf:a/b@c/d1 a--b@c--d1",
	} {
		m, err := Parse(text)
		if got := m.Backbone() + " " + m.Folder(); err != nil || got != want {
			t.Errorf("%s: %s, %v, want %s", text, got, err, want)
		}
	}
	for _, text := range []string{"", "hf:", "clip", "a/b/c", "../b", "a/..", "a/b--c", "a/b@", "a/b@../x",
		"a/b@x/../y", "a/b@/x", "a\x00/b", "a/b c", "-a/b", ".a/b", "a/b@.x", "a/b@x\n", "https://x/a/b",
		"a/" + strings.Repeat("b", 97)} {
		if m, err := Parse(text); err == nil || strings.Contains(err.Error(), "\n") {
			t.Errorf("%q is read as %v, %v", text, m, err)
		}
	}
	for _, value := range []string{"x", "ftp://x", "https://", ":"} {
		t.Setenv("HF_ENDPOINT", value)
		_, err := New()
		goldentest.WantErrorOf(t, value, err, "HF_ENDPOINT")
	}
}

package hubtest

import (
	"bytes"
	"crypto/sha1"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"
)

// Commit is the commit of every repository.
const Commit = "0123456789abcdef0123456789abcdef01234567"

// Token is what the hub accepts where NeedsToken is set.
const Token = "hf_secret"

// Server is a hub with its content delivery network, which is another host. Fields may change between requests.
type Server struct {
	Hub, CDN *httptest.Server
	// Files are the files of the only repository, ORG/NAME, by name. Those that end with .safetensors, .bin or .pt lie
	// on the network.
	Files      map[string][]byte
	License    string
	NeedsToken bool
	Info       func(map[string]any)                              // changes the answer about the repository
	Head       func(name string, h http.Header)                  // changes the headers of an answer about a file
	Refuse     func(w http.ResponseWriter, r *http.Request) bool // answers a request in another way, on both hosts
	CutAfter   int                                               // bytes of an answer of the network; 0 for all
	NoRanges   bool                                              // the network sends whole files
	Content    func(name string, data []byte) []byte             // changes what is sent of a file, not its checksum

	mu       sync.Mutex
	Requests []string // METHOD PATH RANGE of every request
	Leaked   []string // requests to the network with a token
}

// New starts a server with the files of a folder.
func New(t testing.TB, folder string) *Server {
	t.Helper()
	server := &Server{Files: map[string][]byte{"README.md": []byte("---\nlicense: mit\n---\n"),
		"tf_model.h5": []byte("x")},
		License: "mit"}
	list, err := os.ReadDir(folder)
	if err != nil {
		t.Fatal(err)
	}

	for _, e := range list {
		if server.Files[e.Name()], err = os.ReadFile(filepath.Join(folder, e.Name())); err != nil {
			t.Fatal(err)
		}
	}

	server.Hub = httptest.NewServer(http.HandlerFunc(server.hub))
	server.CDN = httptest.NewServer(http.HandlerFunc(server.network))
	t.Cleanup(server.Hub.Close)
	t.Cleanup(server.CDN.Close)
	return server
}

// Asked counts the requests so far that contain a text.
func (s *Server) Asked(text string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return strings.Count(strings.Join(s.Requests, "\n"), text)
}

func (s *Server) note(r *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.Requests = append(s.Requests, strings.TrimSpace(r.Method+" "+r.URL.Path+" "+r.Header.Get("Range")))
}

func large(name string) bool {
	return strings.HasSuffix(name, ".safetensors") || strings.HasSuffix(name, ".bin") || strings.HasSuffix(name, ".pt")
}

func (s *Server) hub(w http.ResponseWriter, r *http.Request) {
	s.note(r)
	if s.Refuse != nil && s.Refuse(w, r) {
		return
	}

	if s.NeedsToken && r.Header.Get("Authorization") != "Bearer "+Token {
		w.Header().Set("X-Error-Code", "GatedRepo")
		w.WriteHeader(http.StatusUnauthorized)
		return
	}

	path := r.URL.Path
	if rest, ok := strings.CutPrefix(path, "/api/models/ORG/NAME/revision/"); ok {
		s.info(w, rest)
		return
	}

	if name, ok := strings.CutPrefix(path, "/api/resolve-cache/"); ok {
		s.send(w, r, name)
		return
	}

	name, ok := strings.CutPrefix(strings.Replace(path, "/main/", "/"+Commit+"/", 1), "/ORG/NAME/resolve/"+Commit+"/")
	data, there := s.Files[name]
	switch {
	case !ok:
		w.Header().Set("X-Error-Code", "RepoNotFound")
		w.WriteHeader(http.StatusUnauthorized)
	case !there:
		w.Header().Set("X-Error-Code", "EntryNotFound")
		w.WriteHeader(http.StatusNotFound)
	case large(name):
		h := w.Header()
		h.Set("X-Repo-Commit", Commit)
		h.Set("X-Linked-Etag", fmt.Sprintf(`"%x"`, sha256.Sum256(data)))
		h.Set("X-Linked-Size", fmt.Sprint(len(data)))
		h.Set("ETag", `"the-pointer"`)
		h.Set("Location", s.CDN.URL+"/"+name+"?signature=secret")
		s.change(name, h)
		w.WriteHeader(http.StatusFound)
	default:
		w.Header().Set("Location", "/api/resolve-cache/"+name)
		w.WriteHeader(http.StatusTemporaryRedirect)
	}
}

func (s *Server) change(name string, h http.Header) {
	if s.Head != nil {
		s.Head(name, h)
	}
}

// info answers about the repository.
func (s *Server) info(w http.ResponseWriter, revision string) {
	if revision != "main" && revision != "v1/x" && revision != Commit {
		w.Header().Set("X-Error-Code", "RevisionNotFound")
		w.WriteHeader(http.StatusNotFound)
		return
	}

	var files []map[string]any
	for name := range s.Files {
		files = append(files, map[string]any{"rfilename": name})
	}

	answer := map[string]any{"id": "ORG/NAME", "sha": Commit, "siblings": files, "cardData": nil,
		"tags": []string{"clip", "license:" + s.License}}
	if s.Info != nil {
		s.Info(answer)
	}

	json.NewEncoder(w).Encode(answer)
}

// send sends a small file of the hub itself.
func (s *Server) send(w http.ResponseWriter, r *http.Request, name string) {
	data := s.Files[name]
	h := w.Header()
	h.Set("X-Repo-Commit", Commit)
	h.Set("ETag", fmt.Sprintf(`"%x"`, sha1.Sum(append(fmt.Appendf(nil, "blob %d\x00", len(data)), data...))))
	s.change(name, h)
	if s.Content != nil {
		data = s.Content(name, data)
	}

	http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(data))
}

// network sends a large file.
func (s *Server) network(w http.ResponseWriter, r *http.Request) {
	s.note(r)
	if r.Header.Get("Authorization") != "" {
		s.mu.Lock()
		s.Leaked = append(s.Leaked, r.URL.Path)
		s.mu.Unlock()
	}

	if s.Refuse != nil && s.Refuse(w, r) {
		return
	}

	name := filepath.Base(r.URL.Path)
	data := s.Files[name]
	if s.Content != nil {
		data = s.Content(name, data)
	}

	if s.NoRanges {
		r.Header.Del("Range")
	}

	if s.CutAfter > 0 {
		w = &cut{w, s.CutAfter}
	}

	http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(data))
}

// cut breaks the connection after some bytes.
type cut struct {
	http.ResponseWriter
	left int
}

func (c *cut) Write(p []byte) (int, error) {
	if len(p) < c.left {
		c.left -= len(p)
		return c.ResponseWriter.Write(p)
	}
	c.ResponseWriter.Write(p[:c.left])
	c.ResponseWriter.(http.Flusher).Flush()
	panic(http.ErrAbortHandler)
}

package hub

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"

	"promptfed/models/bundle"
	"promptfed/models/checkpoint"
	"promptfed/runtime/atomicfile"
)

// snapshot is a repository at one commit, in huggingface_hub's cache:
//
//	models--ORG--NAME/blobs/SUM              content of a file
//	models--ORG--NAME/refs/REVISION          the commit of a branch or tag
//	models--ORG--NAME/snapshots/COMMIT/FILE  link to a blob
type snapshot struct {
	hub     *Hub
	name    bundle.HubName
	commit  string
	license string
	files   []string // names of all files
	local   error    // why the hub was not asked: the cache alone is used; nil else
}

func (s *snapshot) folder() string {
	return filepath.Join(s.hub.cache, "models--"+strings.ReplaceAll(s.name.Repository, "/", "--"))
}

func (s *snapshot) dir() string { return filepath.Join(s.folder(), "snapshots", s.commit) }

func (s *snapshot) revision() string { return cmp.Or(s.name.Revision, "main") }

func (s *snapshot) ref() string {
	return filepath.Join(s.folder(), "refs", filepath.FromSlash(s.revision()))
}

// maxAnswer bounds an answer about a repository, in bytes.
const maxAnswer = 16 << 20

var license = regexp.MustCompile(`^license:([\w.+-]{1,80})$`)

// open asks the hub for the commit, the files and the licence of a repository. Where the hub does not answer, the files
// in the cache are used.
func (h *Hub) open(ctx context.Context, name bundle.HubName) (*snapshot, error) {
	snapshot := &snapshot{hub: h, name: name}
	var info struct {
		SHA      string `json:"sha"`
		Siblings []struct {
			Name string `json:"rfilename"`
		} `json:"siblings"`
		Tags []string `json:"tags"`
	}
	address := fmt.Sprintf("%s/api/models/%s/revision/%s", h.endpoint, name.Repository,
		url.PathEscape(snapshot.revision()))
	err := h.retry(ctx, func() (bool, error) {
		answer, err := h.send(ctx, http.MethodGet, address, name.String(), 0)
		if err != nil {
			return false, err
		}
		defer answer.Body.Close()

		text, err := io.ReadAll(io.LimitReader(answer.Body, maxAnswer))
		if err != nil {
			return false, noAnswer(name.String(), h.endpoint.Host, err)
		}

		if err := json.Unmarshal(text, &info); err != nil || !bundle.IsCommit(info.SHA) {
			return false, fmt.Errorf("%s: %s does not answer like a hub of models: check HF_ENDPOINT", name,
				h.endpoint.Host)
		}

		return false, nil
	})

	if isUnreachable(err) && snapshot.cached() {
		snapshot.local = err
		return snapshot, nil
	}

	if err != nil {
		return nil, err
	}

	if snapshot.commit = info.SHA; bundle.IsCommit(name.Revision) && snapshot.commit != name.Revision {
		return nil, fmt.Errorf("%s: %s answers with another commit, %s", name, h.endpoint.Host, snapshot.commit)
	}

	for _, f := range info.Siblings {
		snapshot.files = append(snapshot.files, f.Name)
	}

	for _, tag := range info.Tags {
		if m := license.FindStringSubmatch(tag); m != nil {
			snapshot.license = m[1]
		}
	}

	return snapshot, nil
}

// cached fills in commit and files from the cache, and reports whether they are there.
func (s *snapshot) cached() bool {
	if s.commit = s.name.Revision; !bundle.IsCommit(s.commit) {
		text, err := atomicfile.ReadAtMost(s.ref(), 100)
		if s.commit = strings.TrimSpace(string(text)); err != nil || !bundle.IsCommit(s.commit) {
			return false
		}
	}

	list, err := os.ReadDir(s.dir())
	for _, e := range list {
		s.files = append(s.files, e.Name())
	}

	return err == nil
}

// checkpointFiles returns the files of a checkpoint that are known so far; see checkpoint.Needed.
func (s *snapshot) checkpointFiles() ([]string, error) { return checkpoint.Needed(s.dir(), s.files) }

// fetch brings files into the snapshot's folder, until needed returns no other ones. Every file is checked, also those
// that are there.
func (s *snapshot) fetch(ctx context.Context, needed func() ([]string, error), progress Progress) error {
	done := map[string]bool{}
	for more := true; more; {
		names, err := needed()
		if err != nil {
			return s.incomplete(err)
		}

		more = false
		for _, name := range names {
			if done[name] {
				continue
			}
			if err := s.file(ctx, name, progress); err != nil {
				return err
			}
			done[name], more = true, true
		}
	}

	if s.local != nil || bundle.IsCommit(s.name.Revision) {
		return nil
	}

	if err := os.MkdirAll(filepath.Dir(s.ref()), 0o777); err != nil {
		return unwritable(err)
	}

	return atomicfile.Write(s.ref(), atomicfile.Bytes([]byte(s.commit)))
}

// incomplete explains that a repository has no checkpoint, or that the cache has a part of it.
func (s *snapshot) incomplete(err error) error {
	if s.local != nil {
		return fmt.Errorf("%w; the cache has a part of it only: %w", s.local, err)
	}
	return fmt.Errorf("%s holds no checkpoint that promptfed reads: %w", s.name, err)
}

// file brings one file into the snapshot's folder.
func (s *snapshot) file(ctx context.Context, name string, progress Progress) error {
	path := filepath.Join(s.dir(), name)
	if s.local != nil {
		real, err := filepath.EvalSymlinks(path)
		if err != nil {
			return s.incomplete(err)
		}
		f := file{sum: filepath.Base(real)}
		if !sums.MatchString(f.sum) { // a copy, where the system has no links
			return nil
		}
		if err := f.check(ctx, path); err != nil {
			return fmt.Errorf("%s: %w: remove it, and repeat the command with a network", real, err)
		}
		return nil
	}

	wanted, err := s.ask(ctx, name)
	if err != nil || wanted.check(ctx, path) == nil {
		return err
	}

	release, err := lock(ctx, filepath.Join(s.hub.cache, ".locks", filepath.Base(s.folder()), wanted.sum+".lock"))
	if err != nil {
		return err
	}
	defer release()

	blob := filepath.Join(s.folder(), "blobs", wanted.sum)
	if err := s.hub.fetch(ctx, wanted, blob, progress); err != nil {
		return err
	}

	return link(ctx, blob, path)
}

// link makes path a link to a blob, as huggingface_hub does.
func link(ctx context.Context, blob, path string) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o777); err != nil {
		return unwritable(err)
	}

	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return unwritable(err)
	}

	to, err := filepath.Rel(filepath.Dir(path), blob)
	if err == nil && os.Symlink(to, path) == nil {
		return nil
	}

	_, err = atomicfile.LinkOrCopy(ctx, blob, path)
	return err
}

// ask asks the hub for size and checksum of a file.
func (s *snapshot) ask(ctx context.Context, name string) (wanted file, err error) {
	wanted = file{what: name + " of " + s.name.Repository, address: fmt.Sprintf("%s/%s/resolve/%s/%s", s.hub.endpoint,
		s.name.Repository, s.commit, url.PathEscape(name)), limit: maxSmall}
	if checkpoint.IsWeights(name) {
		wanted.limit = maxWeights
	}

	var head http.Header
	var size string
	err = s.hub.retry(ctx, func() (bool, error) {
		answer, err := s.hub.send(ctx, http.MethodHead, wanted.address, wanted.what, 0)
		if err == nil {
			head, size = answer.Header, answer.Header.Get("X-Linked-Size")
			if size == "" && answer.StatusCode == http.StatusOK {
				size = answer.Header.Get("Content-Length")
			}
			answer.Body.Close()
		}
		return false, err
	})

	if err != nil {
		return wanted, err
	}

	sum := cmp.Or(head.Get("X-Linked-Etag"), head.Get("ETag"))
	wanted.sum = strings.Trim(strings.TrimPrefix(sum, "W/"), `"`)
	if wanted.size = -1; size != "" {
		wanted.size, err = strconv.ParseInt(size, 10, 64)
	}

	switch commit := head.Get("X-Repo-Commit"); {
	case !sums.MatchString(wanted.sum):
		return wanted,
			fmt.Errorf("%s: %s states no checksum (ETag %.60q), so the file cannot be checked: check HF_ENDPOINT",
				wanted.what, s.hub.endpoint.Host, sum)
	case err != nil || wanted.size < 0 && size != "":
		return wanted, fmt.Errorf("%s: %s states a wrong size (%.60q): check HF_ENDPOINT", wanted.what,
			s.hub.endpoint.Host, size)
	case commit != "" && commit != s.commit:
		return wanted, fmt.Errorf("%s: %s answers with another commit, %.60q: try again", wanted.what,
			s.hub.endpoint.Host, commit)
	}

	return wanted, nil
}

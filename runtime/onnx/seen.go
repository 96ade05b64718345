package onnx

import (
	"fmt"
	"os"
	"path/filepath"
	"sync"
)

// Seen are files of external data as they were when the first model named them. It is for who builds several models of
// the same weights, one after the other. The zero value is ready for use, from many goroutines at the same time.
type Seen struct {
	mu    sync.Mutex
	files map[string]os.FileInfo
}

// Check fails where a file that m names, relative to dir, was replaced or written since a model before m named it.
func (s *Seen) Check(m *ModelProto, dir string) error {
	names, err := ExternalFiles(m)
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, name := range names {
		path := filepath.Join(dir, filepath.FromSlash(name))
		now, err := os.Stat(path)
		if err != nil {
			return err
		}
		if old := s.files[path]; old != nil && !SameFile(old, now) {
			return fmt.Errorf("the weights file %s changed while it is used: start again, and leave the file as it is "+
				"meanwhile", path)
		}
		if s.files == nil {
			s.files = map[string]os.FileInfo{}
		}
		s.files[path] = now
	}
	return nil
}

// SameFile tells whether two looks at a file saw the same content: it was neither replaced nor written between them.
func SameFile(a, b os.FileInfo) bool {
	return os.SameFile(a, b) && a.Size() == b.Size() && a.ModTime().Equal(b.ModTime())
}

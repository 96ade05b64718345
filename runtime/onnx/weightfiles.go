package onnx

import (
	"fmt"
	"os"
	"path/filepath"
	"sync"
)

// WeightFiles records the state of external data files when a model first named them. It serves a caller that builds
// several models of the same weights one after the other. The zero value is ready to use, from many goroutines.
type WeightFiles struct {
	files sync.Map // os.FileInfo by path
}

// Check returns an error if a file that m names, relative to dir, was replaced or written since an earlier model named
// it.
func (s *WeightFiles) Check(m *ModelProto, dir string) error {
	names, err := ExternalFiles(m)
	if err != nil {
		return err
	}

	for _, name := range names {
		path := filepath.Join(dir, filepath.FromSlash(name))
		now, err := os.Stat(path)
		if err != nil {
			return err
		}
		if old, there := s.files.LoadOrStore(path, now); there && !SameFile(old.(os.FileInfo), now) {
			return fmt.Errorf("the weights file %s changed while it is used: start again, and do not change the file "+
				"meanwhile", path)
		}
	}

	return nil
}

// SameFile reports whether two states of a file have the same content: it was neither replaced nor written in between.
func SameFile(a, b os.FileInfo) bool {
	return os.SameFile(a, b) && a.Size() == b.Size() && a.ModTime().Equal(b.ModTime())
}

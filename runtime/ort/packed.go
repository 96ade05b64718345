package ort

import (
	"errors"
	"fmt"
	"path/filepath"
	"sync"
	"unsafe"

	binding "github.com/yalue/onnxruntime_go"
)

// containers hold packed weights by the folder of the weights, for as long as a session uses them.
var containers = struct {
	sync.Mutex
	of map[string]*container
}{of: map[string]*container{}}

type container struct {
	native unsafe.Pointer
	users  int
}

// packed is what a session holds whose packed weights are those of all sessions over the same folder. ONNX Runtime
// shares what it packs from tensors that the caller gives to it, by their packed content, and these tensors must
// outlive the session.
type packed struct {
	api    *api
	folder string // "" before it has joined
	values []unsafe.Pointer
	files  map[string][]byte
}

// compilePacked compiles the graph with packed weights that it shares. options are the session's.
func (p *program) compilePacked(options *binding.SessionOptions) (s *binding.DynamicAdvancedSession, held *packed,
	err error) {
	a, err := native()
	if err != nil {
		return nil, nil, err
	}
	o, err := pointerIn(options, "o")
	if err != nil {
		return nil, nil, err
	}
	held = &packed{api: a, files: map[string][]byte{}}
	if err := held.give(p, *o); err != nil {
		return nil, nil, errors.Join(err, held.close())
	}
	shared, err := held.join(p.weights)
	if err == nil {
		s, err = a.newSession(p.model, *o, shared, p.native, p.nativeOutputs)
	}
	if err != nil {
		return nil, nil, errors.Join(err, held.close())
	}
	for _, data := range held.files { // what is packed is not read again
		forget(data)
	}
	return s, held, nil
}

// give lets a session take the program's matrices from memory that is mapped from their files.
func (h *packed) give(p *program, options unsafe.Pointer) error {
	for _, m := range p.matrices {
		path := filepath.Join(p.weights, filepath.FromSlash(m.at.File))
		data, ok := h.files[path]
		if !ok {
			var err error
			if data, err = mapFile(path); err != nil {
				return fmt.Errorf("mapping %s: %w", path, err)
			}
			h.files[path] = data
		}
		if m.at.Offset%4 != 0 || m.at.Offset+m.at.Length > int64(len(data)) {
			continue // ONNX Runtime reads it itself, or tells that the file was cut short meanwhile
		}
		v, err := h.api.addMatrix(options, m, data)
		if v != nil {
			h.values = append(h.values, v)
		}
		if err != nil {
			return fmt.Errorf("tensor %q: %w", m.name, err)
		}
	}
	return nil
}

// join takes part in the packed weights of a folder.
func (h *packed) join(folder string) (unsafe.Pointer, error) {
	containers.Lock()
	defer containers.Unlock()
	c := containers.of[folder]
	if c == nil {
		n, err := h.api.newContainer()
		if err != nil {
			return nil, err
		}
		c = &container{native: n}
		containers.of[folder] = c
	}
	c.users++
	h.folder = folder
	return c.native, nil
}

// close frees what the session held; it must be closed already.
func (h *packed) close() error {
	if h == nil {
		return nil
	}
	for _, v := range h.values {
		h.api.releaseValue(v)
	}
	var err error
	for _, data := range h.files {
		err = errors.Join(err, unmapFile(data))
	}
	containers.Lock()
	defer containers.Unlock()
	if c := containers.of[h.folder]; c != nil {
		if c.users--; c.users == 0 {
			h.api.releaseContainer(c.native)
			delete(containers.of, h.folder)
		}
	}
	return err
}

package ort

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"unsafe"

	"github.com/edsrzf/mmap-go"
	binding "github.com/yalue/onnxruntime_go"

	"promptfed/runtime/kernels"
	"promptfed/runtime/onnx"
)

// containers hold what sessions over one folder of weights share while one of them is open: packed weights on the CPU,
// the weights themselves on a device.
var containers = struct {
	sync.Mutex
	of map[place]*container
}{of: map[place]*container{}}

// place is a folder of weights, for one device of a provider.
type place struct {
	folder, provider string
	device           int // onHost for the CPU
}

const onHost = -1

type container struct {
	packed   unsafe.Pointer // ONNX Runtime's container of packed weights
	uploader *uploader
	files    []os.FileInfo             // of all users; a file that was replaced or rewritten is another file
	values   map[string]unsafe.Pointer // of copies and packed matrices, by file number, offset, shape
	copies   []unsafe.Pointer          // of weights, on the device
	memory   []unsafe.Pointer          // of packed matrices
	users    int
}

// sharer is the part of a session that it shares with all sessions over the same folder. ONNX Runtime shares the packed
// form of tensors that the caller supplies, by their packed content, and uses tensors on the session's device in place
// (its pull request 5092). The caller owns their memory, which must outlive the session.
type sharer struct {
	api    *api
	in     *container // nil before join
	at     place
	values []unsafe.Pointer // of this session alone, on the host
	files  map[string]mapped
}

// mapped is a mapped file of weights, and its index in container.files.
type mapped struct {
	data   mmap.MMap
	number int
}

// compileShared compiles the graph with shared weights.
func (r *replica) compileShared(p *program, options *binding.SessionOptions, o Options) error {
	a, err := native()
	if err != nil {
		return err
	}
	r.held = &sharer{api: a, files: map[string]mapped{}, at: place{p.weights, o.Provider, onHost}}
	if o.onDevice() {
		r.held.at.device = o.Device
	}
	if err := r.held.join(o); err != nil {
		return err
	}
	r.uploader = r.held.in.uploader
	if err := r.held.give(p, handle(options)); err != nil {
		return err
	}
	if err := r.compile(p, options, r.held.in.packed); err != nil {
		return err
	}
	for _, f := range r.held.files { // packed or uploaded weights are not read again
		forget(f.data)
	}
	return nil
}

// give makes a session use the program's weights from mapped files, or from the device. On the host it does so only for
// matrices, because ONNX Runtime packs no others.
func (h *sharer) give(p *program, options unsafe.Pointer) error {
	for _, w := range p.external {
		if h.at.device == onHost && len(w.shape) != 2 && w.packed == nil {
			continue
		}
		path := filepath.Join(p.weights, filepath.FromSlash(w.at.File))
		f, ok := h.files[path]
		if !ok {
			var err error
			if f, err = h.in.mapFile(path); err != nil {
				return fmt.Errorf("mapping %s: %w", path, err)
			}
			h.files[path] = f
		}
		if w.packed == nil && (w.at.Offset%4 != 0 || w.at.Offset+w.at.Length > int64(len(f.data))) {
			continue // ONNX Runtime reads it, or reports a file that was cut short meanwhile
		}
		v, err := h.value(w, f)
		if err == nil {
			err = h.api.addInitializer(options, w.name, v)
		}
		if err != nil {
			return fmt.Errorf("tensor %q: %w", w.name, err)
		}
	}
	return nil
}

// mapFile maps a file. Its index in the container stays the same until the file is replaced or written.
func (c *container) mapFile(path string) (m mapped, err error) {
	f, err := os.Open(path)
	if err != nil {
		return m, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return m, err
	}
	if m.data, err = mmap.Map(f, mmap.RDONLY, 0); err != nil {
		return m, err
	}
	containers.Lock()
	defer containers.Unlock()
	m.number = slices.IndexFunc(c.files, func(f os.FileInfo) bool { return onnx.SameFile(f, info) })
	if m.number < 0 {
		m.number, c.files = len(c.files), append(c.files, info)
	}
	return m, nil
}

// value returns the native value of a weight: in the mapped file, packed, or the one copy on the device.
func (h *sharer) value(w weight, f mapped) (unsafe.Pointer, error) {
	if w.packed != nil {
		return h.panels(w, f)
	}
	v, err := h.api.wrap(unsafe.Pointer(&f.data[w.at.Offset]), int(w.at.Length), w.shape, float32Elements)
	if err != nil {
		return nil, err
	}
	if h.at.device == onHost {
		h.values = append(h.values, v)
		return v, nil
	}
	defer h.api.releaseValue(v)
	containers.Lock()
	defer containers.Unlock()
	key := fmt.Sprint(f.number, w.at.Offset, w.shape)
	if h.in.values[key] == nil {
		copied, err := h.in.uploader.upload(v)
		if err != nil {
			return nil, fmt.Errorf("copying it to device %d: %w", h.at.device, err)
		}
		h.in.copies = append(h.in.copies, copied)
		if h.in.values[key], err = h.api.view(copied, int(w.at.Length), w.shape); err != nil {
			return nil, err
		}
	}
	return h.in.values[key], nil
}

// panels returns a packed matrix, which sessions over the same folder share.
func (h *sharer) panels(w weight, f mapped) (unsafe.Pointer, error) {
	if w.at.Offset+w.at.Length > int64(len(f.data)) {
		return nil, fmt.Errorf("%s was cut short to %d bytes", w.at.File, len(f.data))
	}
	containers.Lock()
	defer containers.Unlock()
	key := fmt.Sprint(f.number, w.at.Offset, w.shape, w.packed.Transposed)
	if h.in.values[key] != nil {
		return h.in.values[key], nil
	}
	memory, err := w.packed.Pack(f.data[w.at.Offset:])
	if err != nil {
		return nil, err
	}
	h.in.memory = append(h.in.memory, memory)
	v, err := h.api.wrap(memory, int(w.at.Length), w.shape, float32Elements)
	if err == nil {
		h.in.values[key] = v
	}
	return v, err
}

func (h *sharer) join(o Options) (err error) {
	containers.Lock()
	defer containers.Unlock()
	c := containers.of[h.at]
	if c == nil {
		c = &container{values: map[string]unsafe.Pointer{}}
		if c.packed, err = h.api.newContainer(); err != nil {
			return err
		}
		if h.at.device != onHost {
			if c.uploader, err = h.api.newUploader(o); err != nil {
				h.api.releaseContainer(c.packed)
				return err
			}
		}
		containers.of[h.at] = c
	}
	c.users++
	h.in = c
	return nil
}

// close frees the shared weights of a session, which must be closed already.
func (h *sharer) close() error {
	if h == nil {
		return nil
	}
	for _, v := range h.values {
		h.api.releaseValue(v)
	}
	var err error
	for _, f := range h.files {
		err = errors.Join(err, f.data.Unmap())
	}
	containers.Lock()
	defer containers.Unlock()
	if h.in == nil {
		return err
	}
	if h.in.users--; h.in.users > 0 {
		return err
	}
	delete(containers.of, h.at)
	for _, v := range slices.AppendSeq(h.in.copies, maps.Values(h.in.values)) {
		h.api.releaseValue(v)
	}
	for _, m := range h.in.memory {
		kernels.Free(m)
	}
	h.api.releaseContainer(h.in.packed)
	if h.in.uploader != nil {
		h.in.uploader.close()
	}
	return err
}

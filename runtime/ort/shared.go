package ort

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"sync"
	"unsafe"

	"github.com/edsrzf/mmap-go"
	binding "github.com/yalue/onnxruntime_go"
	"golang.org/x/sync/errgroup"

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
	packing  sync.Mutex // locked while a session's matrices are packed
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
func (r *replica) compileShared(program *program, options *binding.SessionOptions, settings Options) error {
	a, err := native()
	if err != nil {
		return err
	}

	r.held = &sharer{api: a, files: map[string]mapped{}, at: place{program.weights, settings.Provider, onHost}}
	if settings.onDevice() {
		r.held.at.device = settings.Device
	}

	if err := r.held.join(settings); err != nil {
		return err
	}

	r.uploader = r.held.in.uploader
	if err := r.held.give(program, handle(options)); err != nil {
		return err
	}

	if err := r.compile(program, options, r.held.in.packed); err != nil {
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
	if err := h.pack(p); err != nil {
		return err
	}

	for _, weight := range p.external {
		if h.at.device == onHost && len(weight.shape) != 2 && weight.packed == nil {
			continue
		}

		f, err := h.mapped(p, weight)
		if err != nil {
			return err
		}

		if weight.packed == nil && (weight.at.Offset%4 != 0 || weight.at.Offset+weight.at.Length > int64(len(f.data))) {
			continue // ONNX Runtime reads it, or reports a file that was cut short meanwhile
		}

		v, err := h.value(weight, f)
		if err == nil {
			err = h.api.addInitializer(options, weight.name, v)
		}

		if err != nil {
			return fmt.Errorf("tensor %q: %w", weight.name, err)
		}
	}

	return nil
}

// mapped returns the mapped file of a weight.
func (h *sharer) mapped(p *program, w weight) (f mapped, err error) {
	path := filepath.Join(p.weights, filepath.FromSlash(w.at.File))
	f, ok := h.files[path]
	if !ok {
		if f, err = h.in.mapFile(path); err != nil {
			return f, fmt.Errorf("mapping %s: %w", path, err)
		}
		h.files[path] = f
	}

	return f, nil
}

// mapFile maps a file. Its index in the container stays the same until the file is replaced or written.
func (c *container) mapFile(path string) (mapped mapped, err error) {
	file, err := os.Open(path)
	if err != nil {
		return mapped, err
	}
	defer file.Close()

	info, err := file.Stat()
	if err != nil {
		return mapped, err
	}

	if mapped.data, err = mmap.Map(file, mmap.RDONLY, 0); err != nil {
		return mapped, err
	}

	containers.Lock()
	defer containers.Unlock()
	mapped.number = slices.IndexFunc(c.files, func(f os.FileInfo) bool { return onnx.SameFile(f, info) })
	if mapped.number < 0 {
		mapped.number, c.files = len(c.files), append(c.files, info)
	}

	return mapped, nil
}

// value returns the native value of a weight: in the mapped file, packed, or the one copy on the device.
func (h *sharer) value(weight weight, mapped mapped) (unsafe.Pointer, error) {
	if weight.packed != nil {
		containers.Lock()
		defer containers.Unlock()
		return h.in.values[weight.panels(mapped)], nil
	}

	pointer, err := h.api.wrap(unsafe.Pointer(&mapped.data[weight.at.Offset]), int(weight.at.Length), weight.shape,
		float32Elements)
	if err != nil {
		return nil, err
	}

	if h.at.device == onHost {
		h.values = append(h.values, pointer)
		return pointer, nil
	}
	defer h.api.releaseValue(pointer)

	containers.Lock()
	defer containers.Unlock()
	key := fmt.Sprint(mapped.number, weight.at.Offset, weight.shape)
	if h.in.values[key] == nil {
		copied, err := h.in.uploader.upload(pointer)
		if err != nil {
			return nil, fmt.Errorf("copying it to device %d: %w", h.at.device, err)
		}
		h.in.copies = append(h.in.copies, copied)
		if h.in.values[key], err = h.api.view(copied, int(weight.at.Length), weight.shape); err != nil {
			return nil, err
		}
	}

	return h.in.values[key], nil
}

// panels returns the key of a packed matrix in container.values.
func (w weight) panels(f mapped) string {
	return fmt.Sprint(f.number, w.at.Offset, w.shape, w.packed.Transposed)
}

// pack packs the matrices of a program that no session over the same folder has packed yet, on all processors.
func (h *sharer) pack(p *program) error {
	h.in.packing.Lock()
	defer h.in.packing.Unlock()
	var all errgroup.Group
	all.SetLimit(runtime.GOMAXPROCS(0))
	for _, w := range p.external {
		if w.packed == nil {
			continue
		}
		f, err := h.mapped(p, w)
		if err == nil && w.at.Offset+w.at.Length > int64(len(f.data)) {
			err = fmt.Errorf("%s was cut short to %d bytes", w.at.File, len(f.data))
		}
		all.Go(func() error {
			if err == nil {
				err = h.in.packOnce(h.api, w, f)
			}
			return err
		})
	}

	return all.Wait()
}

// packOnce packs a matrix unless it is packed. The caller holds c.packing.
func (c *container) packOnce(api *api, weight weight, f mapped) error {
	key := weight.panels(f)
	containers.Lock()
	packed := c.values[key] != nil
	containers.Unlock()
	if packed {
		return nil
	}

	memory, err := weight.packed.Pack(f.data[weight.at.Offset:])
	if err != nil {
		return fmt.Errorf("tensor %q: %w", weight.name, err)
	}

	v, err := api.wrap(memory, int(weight.at.Length), weight.shape, float32Elements)
	containers.Lock()
	defer containers.Unlock()
	if err != nil || c.values[key] != nil { // another initializer of the graph is the same matrix
		api.releaseValue(v)
		kernels.Free(memory)
		return err
	}

	c.memory, c.values[key] = append(c.memory, memory), v
	return nil
}

func (h *sharer) join(o Options) (err error) {
	containers.Lock()
	defer containers.Unlock()
	shared := containers.of[h.at]
	if shared == nil {
		shared = &container{values: map[string]unsafe.Pointer{}}
		if shared.packed, err = h.api.newContainer(); err != nil {
			return err
		}
		if h.at.device != onHost {
			if shared.uploader, err = h.api.newUploader(o); err != nil {
				h.api.releaseContainer(shared.packed)
				return err
			}
		}
		containers.of[h.at] = shared
	}

	shared.users++
	h.in = shared
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

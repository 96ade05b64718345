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

// container has weights for sessions over one place. ONNX Runtime shares the packed form of tensors that the caller
// supplies, by their packed content, and uses tensors on the session's device in place (its pull request 5092). The
// caller owns their memory, which must outlive the sessions.
type container struct {
	api      *api
	at       place
	packed   unsafe.Pointer // ONNX Runtime's container of packed weights
	uploader *uploader
	files    []mapped                  // of all users
	values   map[string]unsafe.Pointer // in files, on the device and packed, by file number, offset, shape
	copies   []unsafe.Pointer          // of weights, on the device
	memory   []unsafe.Pointer          // of packed matrices
	users    int
	packing  sync.Mutex // locked while a session's matrices are packed
}

// mapped is a mapped file of weights, number in container.files. A file that was replaced or rewritten is another file.
type mapped struct {
	info   os.FileInfo
	data   mmap.MMap
	number int
}

// compileShared compiles the graph with shared weights.
func (r *replica) compileShared(program *program, options *binding.SessionOptions, settings Options) (err error) {
	at := place{program.weights, settings.Provider, onHost}
	if settings.onDevice() {
		at.device = settings.Device
	}

	if r.held, err = join(at, settings); err != nil {
		return err
	}

	r.uploader = r.held.uploader
	files, err := r.held.mapFiles(program)
	if err != nil {
		return err
	}

	if err := r.held.pack(program, files); err != nil {
		return err
	}

	if err := r.held.give(program, files, handle(options)); err != nil {
		return err
	}

	if err := r.compile(program, options, r.held.packed); err != nil {
		return err
	}

	for _, f := range files { // packed or uploaded weights are not read again
		forget(f.data)
	}

	return nil
}

// supplies reports whether sessions take a weight from the container: on the host only matrices, because ONNX Runtime
// packs no others.
func (c *container) supplies(w weight) bool {
	return c.at.device != onHost || len(w.shape) == 2 || w.packed != nil
}

// mapFiles returns the mapped files of a program's weights.
func (c *container) mapFiles(p *program) (map[string]mapped, error) {
	files := map[string]mapped{}
	for _, w := range p.external {
		if _, done := files[w.at.File]; done || !c.supplies(w) {
			continue
		}
		path := filepath.Join(p.weights, filepath.FromSlash(w.at.File))
		f, err := c.mapFile(path)
		if err != nil {
			return nil, fmt.Errorf("mapping %s: %w", path, err)
		}
		files[w.at.File] = f
	}

	return files, nil
}

// mapFile maps a file, unless another session did.
func (c *container) mapFile(path string) (f mapped, err error) {
	file, err := os.Open(path)
	if err != nil {
		return f, err
	}
	defer file.Close()

	if f.info, err = file.Stat(); err != nil {
		return f, err
	}

	containers.Lock()
	defer containers.Unlock()
	if i := slices.IndexFunc(c.files, func(old mapped) bool { return onnx.SameFile(old.info, f.info) }); i >= 0 {
		return c.files[i], nil
	}

	f.number = len(c.files)
	if f.data, err = mmap.Map(file, mmap.RDONLY, 0); err == nil {
		c.files = append(c.files, f)
	}

	return f, err
}

// give makes a session use the program's weights from mapped files, or from the device.
func (c *container) give(p *program, files map[string]mapped, options unsafe.Pointer) error {
	for _, weight := range p.external {
		if !c.supplies(weight) {
			continue
		}

		f, end := files[weight.at.File], weight.at.Offset+weight.at.Length
		if weight.packed == nil && (weight.at.Offset%4 != 0 || end > int64(len(f.data))) {
			continue // ONNX Runtime reads it, or reports a file that was cut short meanwhile
		}

		v, err := c.value(weight, f)
		if err == nil {
			err = c.api.addInitializer(options, weight.name, v)
		}

		if err != nil {
			return fmt.Errorf("tensor %q: %w", weight.name, err)
		}
	}

	return nil
}

// value returns the native value of a weight: packed, in the mapped file, or the one copy on the device.
func (c *container) value(weight weight, mapped mapped) (unsafe.Pointer, error) {
	containers.Lock()
	defer containers.Unlock()
	key := weight.key(mapped)
	if c.values[key] != nil {
		return c.values[key], nil
	}

	pointer, err := c.api.wrap(unsafe.Pointer(&mapped.data[weight.at.Offset]), int(weight.at.Length), weight.shape,
		float32Elements)
	if err != nil {
		return nil, err
	}

	if c.at.device == onHost {
		c.values[key] = pointer
		return pointer, nil
	}
	defer c.api.releaseValue(pointer)

	copied, err := c.uploader.upload(pointer)
	if err != nil {
		return nil, fmt.Errorf("copying it to device %d: %w", c.at.device, err)
	}

	c.copies = append(c.copies, copied)
	view, err := c.api.view(copied, int(weight.at.Length), weight.shape)
	if err == nil {
		c.values[key] = view
	}

	return view, err
}

// key is that of a weight in container.values.
func (w weight) key(f mapped) string {
	if w.packed != nil {
		return fmt.Sprint(f.number, w.at.Offset, w.shape, w.packed.Transposed)
	}
	return fmt.Sprint(f.number, w.at.Offset, w.shape)
}

// pack packs the matrices of a program that no session over the same folder has packed yet, on all processors.
func (c *container) pack(p *program, files map[string]mapped) error {
	c.packing.Lock()
	defer c.packing.Unlock()
	var all errgroup.Group
	all.SetLimit(runtime.GOMAXPROCS(0))
	for _, w := range p.external {
		if w.packed == nil {
			continue
		}
		all.Go(func() error {
			f := files[w.at.File]
			if w.at.Offset+w.at.Length > int64(len(f.data)) {
				return fmt.Errorf("%s was cut short to %d bytes", w.at.File, len(f.data))
			}
			return c.packOnce(w, f)
		})
	}

	return all.Wait()
}

// packOnce packs a matrix unless it is packed. The caller holds c.packing.
func (c *container) packOnce(weight weight, f mapped) error {
	key := weight.key(f)
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

	v, err := c.api.wrap(memory, int(weight.at.Length), weight.shape, float32Elements)
	containers.Lock()
	defer containers.Unlock()
	if err != nil || c.values[key] != nil { // another initializer of the graph is the same matrix
		c.api.releaseValue(v)
		kernels.Free(memory)
		return err
	}

	c.memory, c.values[key] = append(c.memory, memory), v
	return nil
}

// join returns the container of a place for one more session, which closes it once.
func join(at place, o Options) (shared *container, err error) {
	a, err := native()
	if err != nil {
		return nil, err
	}

	containers.Lock()
	defer containers.Unlock()
	if shared = containers.of[at]; shared == nil {
		shared = &container{api: a, at: at, values: map[string]unsafe.Pointer{}}
		if shared.packed, err = a.newContainer(); err != nil {
			return nil, err
		}
		if at.device != onHost {
			if shared.uploader, err = a.newUploader(o); err != nil {
				a.releaseContainer(shared.packed)
				return nil, err
			}
		}
		containers.of[at] = shared
	}

	shared.users++
	return shared, nil
}

// close ends the use of weights by a session, which must be closed already.
func (c *container) close() (err error) {
	if c == nil {
		return nil
	}

	containers.Lock()
	defer containers.Unlock()
	if c.users--; c.users > 0 {
		return nil
	}

	delete(containers.of, c.at)
	for _, v := range slices.AppendSeq(c.copies, maps.Values(c.values)) {
		c.api.releaseValue(v)
	}

	for _, f := range c.files {
		err = errors.Join(err, f.data.Unmap())
	}

	for _, m := range c.memory {
		kernels.Free(m)
	}

	c.api.releaseContainer(c.packed)
	if c.uploader != nil {
		c.uploader.close()
	}

	return err
}

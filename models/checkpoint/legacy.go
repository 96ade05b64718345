package checkpoint

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math/big"

	"github.com/nlpodyssey/gopickle/types"

	"promptfed/runtime/oneline"
)

// legacyMagic begins a torch.save file from before PyTorch 1.6: five pickles (magic number, protocol version, system
// information, the object, the storage keys), then for each key a 64-bit element count and the raw elements.
var legacyMagic, _ = new(big.Int).SetString("1950a86a20f9469cfc6c", 16)

const legacyProtocol = 1001

// legacy is such a file; offsets holds the offsets of the elements of each storage.
type legacy struct {
	r       io.ReaderAt
	types   map[string]*storage
	offsets map[string]int64
}

// openLegacy unpickles the object and finds the storages in a file of size bytes.
func openLegacy(reader io.ReaderAt, size int64) (any, *legacy, error) {
	at := int64(0)
	next := func(persistent func(any) (any, error)) (any, error) {
		v, n, err := readPickle(io.NewSectionReader(reader, at, size-at), persistent, false)
		at += n
		return v, err
	}

	magic, err := next(nil)
	if err != nil {
		return nil, nil, err
	}

	if m, ok := magic.(*big.Int); !ok || m.Cmp(legacyMagic) != 0 {
		return nil, nil, errors.New("a pickle, but not one of torch.save (its magic number is missing)")
	}

	protocol, err := next(nil)
	if err != nil {
		return nil, nil, err
	}

	if protocol != legacyProtocol {
		return nil, nil, fmt.Errorf("torch.save protocol %s, want %d", oneline.Short(fmt.Sprint(protocol)),
			legacyProtocol)
	}

	facts, err := next(nil)
	if err != nil {
		return nil, nil, err
	}

	if d, ok := facts.(*types.Dict); ok {
		for _, e := range *d {
			if e.Key == "little_endian" && e.Value == false {
				return nil, nil, errors.New("the file is big-endian; only little-endian checkpoints can be read")
			}
		}
	}

	legacy := &legacy{r: reader, types: map[string]*storage{}, offsets: map[string]int64{}}
	object, err := next(legacy.persistent)
	if err != nil {
		return nil, nil, err
	}

	keys, err := next(nil)
	if err != nil {
		return nil, nil, err
	}

	list, ok := keys.(*types.List)
	if !ok {
		return nil, nil, fmt.Errorf("the storage keys are %T, want a list", keys)
	}

	return object, legacy, legacy.locate(*list, at, size)
}

// persistent reads ("storage", type, key, device, count, view), where view is None or (key, offset, count).
func (l *legacy) persistent(id any) (any, error) {
	st, err := parseStorage(id)
	if err != nil {
		return nil, err
	}

	if old := l.types[st.key]; old == nil {
		l.types[st.key] = st
	} else if *old != *st {
		return nil, fmt.Errorf("storage %q is described in two ways", st.key)
	}

	if t := *id.(*types.Tuple); len(t) > 5 && t[5] != nil {
		v, ok := t[5].(*types.Tuple)
		if !ok || len(*v) != 3 {
			return nil, errors.New("a storage view is malformed")
		}
		start, ok1 := (*v)[1].(int)
		count, ok2 := (*v)[2].(int)
		if !ok1 || !ok2 || start < 0 || count < 0 || int64(start) > st.count || int64(count) > st.count-int64(start) {
			return nil, fmt.Errorf("a view of storage %q lies outside its %d elements", st.key, st.count)
		}
		return &storage{dtype: st.dtype, key: st.key, count: int64(count), start: int64(start)}, nil
	}

	return l.types[st.key], nil
}

// locate finds the offsets of the storages, which begin at offset at.
func (l *legacy) locate(keys []any, at, size int64) error {
	for _, k := range keys {
		key, ok := k.(string)
		st := l.types[key]
		if !ok || st == nil {
			return fmt.Errorf("storage key %s is used by no tensor", oneline.Short(fmt.Sprint(k)))
		}

		var b [8]byte
		if _, err := l.r.ReadAt(b[:], at); err != nil || at+8 > size {
			return fmt.Errorf("storage %q is missing; the file is truncated", key)
		}

		count := binary.LittleEndian.Uint64(b[:])
		if count != uint64(st.count) {
			return fmt.Errorf("storage %q holds %d elements, its tensors expect %d", key, count, st.count)
		}

		l.offsets[key] = at + 8
		at += 8
		if n := st.count * int64(elementSize(st.dtype)); n > size-at {
			return fmt.Errorf("storage %q needs %d bytes, %d are left; the file is truncated", key, n, size-at)
		} else {
			at += n
		}
	}

	for key := range l.types {
		if _, ok := l.offsets[key]; !ok {
			return fmt.Errorf("storage %q is missing from the file", key)
		}
	}

	return nil
}

func (l *legacy) place(st *storage) (at int64, stored bool, err error) {
	return l.offsets[st.key] + st.start*int64(elementSize(st.dtype)), true, nil
}

func (l *legacy) open(st *storage) (r io.ReaderAt, at int64, err error) {
	at, _, err = l.place(st)
	return l.r, at, err
}

// parseStorage reads a persistent id ("storage", type, key, device, count, ...).
func parseStorage(id any) (*storage, error) {
	t, ok := id.(*types.Tuple)
	if !ok || len(*t) < 5 || (*t)[0] != "storage" {
		return nil, errors.New("a persistent id does not name a storage")
	}

	dtype, ok1 := (*t)[1].(storageType)
	key, ok2 := (*t)[2].(string)
	count, ok3 := (*t)[4].(int)
	if !ok1 || !ok2 || !ok3 || count < 0 || int64(count) > 1<<50 {
		return nil, fmt.Errorf("storage %s is of an unsupported type or size", oneline.Short(fmt.Sprint((*t)[2])))
	}

	if len(key) > maxName {
		return nil, fmt.Errorf("a storage has a key of %d bytes, the limit is %d", len(key), maxName)
	}

	return &storage{dtype: string(dtype), key: key, count: int64(count)}, nil
}

package cifar

import (
	"fmt"
	"os"

	"github.com/nlpodyssey/gopickle/types"

	"promptfed/federation/data/formats/pickle"
	"promptfed/federation/data/sets/source"
	"promptfed/runtime/filestamp"
)

func (r *cifarReader) pickleFile(x *source.Pixels) (fine, coarse []int, err error) {
	err = cifarPickle(x.Path, func(f *os.File, get func(string) (any, error)) error {
		st, err := f.Stat()
		if err != nil {
			return err
		}
		v, err := get("data")
		if err != nil {
			return err
		}
		a, ok := v.(*pickle.Array)
		if !ok || len(a.Shape) != 2 || a.Shape[1] != cifarPixels {
			return fmt.Errorf("\"data\" is not a numpy array of N x %d bytes", cifarPixels)
		}
		x.Count, x.Stamp = a.Shape[0], filestamp.Of(st)
		if err := x.SetArray(a); err != nil {
			return err
		}
		lists := []*[]int{&fine, &coarse}
		for i, limit := range r.limits() {
			v, err := get(r.labels[i])
			if err != nil {
				return err
			}
			numbers, err := pickle.Numbers(f, v)
			if err != nil {
				return err
			}
			if len(numbers) != x.Count {
				return fmt.Errorf("%d images but %d %s", x.Count, len(numbers), r.labels[i])
			}
			for j, n := range numbers {
				if n < 0 || n >= float64(limit) {
					return fmt.Errorf("record %d has label %v, but there are %d classes", j, n, limit)
				}
				*lists[i] = append(*lists[i], int(n))
			}
		}
		return nil
	})
	return fine, coarse, err
}

// cifarPickle opens a pickled dictionary; get looks up a key, which Python 2 wrote as bytes.
func cifarPickle(path string, use func(f *os.File, get func(string) (any, error)) error) error {
	f, st, err := source.OpenFile(path)
	if err != nil {
		return err
	}
	defer f.Close()
	v, err := pickle.Read(f, 0, st.Size())
	if err != nil {
		return err
	}
	d, ok := v.(*types.Dict)
	if !ok {
		return fmt.Errorf("the pickle holds %T: expected a dictionary", v)
	}
	return use(f, func(key string) (any, error) {
		for _, e := range *d {
			if k, ok := pickle.Text(e.Key); ok && k == key {
				return e.Value, nil
			}
		}
		return nil, fmt.Errorf("the pickle has no %q: expected a batch of CIFAR's Python version", key)
	})
}

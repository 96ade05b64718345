package checkpoint

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/nlpodyssey/gopickle/types"
)

const (
	maxDepth = 64      // modules within modules
	maxNodes = 1 << 20 // attributes visited; a pickle may name one object many times
)

// flattenModule returns the tensors of a TorchScript module tree by their state-dict names, such as
// "visual.transformer.resblocks.0.attn.in_proj_weight".
func flattenModule(root *module) (map[string]*view, error) {
	out := map[string]*view{}
	budget := maxNodes
	var walk func(m *module, prefix string, depth int) error
	walk = func(m *module, prefix string, depth int) (err error) {
		if depth > maxDepth {
			return fmt.Errorf("modules nest more than %d deep", maxDepth)
		}

		for _, a := range m.attrs {
			if budget--; budget < 0 {
				return fmt.Errorf("the module tree has more than %d attributes", maxNodes)
			}
			switch v := a.value.(type) {
			case *view:
				out[prefix+a.name] = v
			case *module:
				if err = walk(v, prefix+a.name+".", depth+1); err != nil {
					return err
				}
			}
		}

		return nil
	}

	return out, walk(root, "", 0)
}

// flattenDict returns the tensors of a state dict, which is the object itself or, in a training checkpoint, its entry
// "state_dict", "model_state_dict", "model" or "module"; inner reports an entry. Other values of the dict are ignored.
func flattenDict(object any) (found map[string]*view, inner bool, err error) {
	top, ok := entries(object)
	if !ok {
		return nil, false, fmt.Errorf("the file holds %s, want a state dict; save one with "+
			"torch.save(model.state_dict(), ...)", kindOf(object))
	}

	for _, key := range []string{"state_dict", "model_state_dict", "model", "module"} {
		for _, e := range top {
			if inner, ok := entries(e.Value); ok && e.Key == key && len(views(inner)) > 0 {
				return views(inner), true, nil
			}
		}
	}

	if out := views(top); len(out) > 0 {
		return out, false, nil
	}

	return nil, false, errors.New("the file holds no tensors by name, want a state dict; save one with " +
		"torch.save(model.state_dict(), ...)")
}

func views(list []types.DictEntry) map[string]*view {
	out := map[string]*view{}
	for _, e := range list {
		if name, ok := e.Key.(string); ok {
			if v, ok := e.Value.(*view); ok {
				out[name] = v
			}
		}
	}

	return out
}

// entries returns the pairs of a dict or an ordered dict.
func entries(v any) ([]types.DictEntry, bool) {
	switch d := v.(type) {
	case *types.Dict:
		return *d, true
	case *types.OrderedDict:
		var out []types.DictEntry
		for e := d.List.Front(); e != nil; e = e.Next() {
			pair := e.Value.(*types.OrderedDictEntry)
			out = append(out, types.DictEntry{Key: pair.Key, Value: pair.Value})
		}
		return out, true
	}

	return nil, false
}

func kindOf(v any) string {
	switch v.(type) {
	case *view:
		return "one tensor"
	case *types.List, *types.Tuple:
		return "a list"
	case *module:
		return "a TorchScript module"
	}

	return "something else"
}

// trimPrefixes removes the prefixes that wrappers put before every name: "module." (DataParallel), "_orig_mod."
// (torch.compile).
func trimPrefixes[V any](values map[string]V) map[string]V {
	for range 4 {
		for _, prefix := range []string{"module.", "_orig_mod."} {
			if slices.ContainsFunc(keys(values), func(k string) bool { return !strings.HasPrefix(k, prefix) }) {
				continue
			}
			out := make(map[string]V, len(values))
			for k, v := range values {
				out[strings.TrimPrefix(k, prefix)] = v
			}
			values = out
		}
	}

	return values
}

func keys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }

package engine

import (
	"encoding/json"
	"io"
	"path/filepath"
	"promptfed/runtime/atomicfile"
	"promptfed/runtime/tensor"
	"slices"
)

// confusion puts the counts of clients together; nil where nobody told any.
func (s *Server) confusion(round int, replies []Reply) *Confusion {
	out := &Confusion{Round: round}
	parts := map[string][]*tensor.Tensor{}
	// classes that this experiment does not have: the client is not to be believed
	foreign := func(t *tensor.Tensor) bool {
		return slices.ContainsFunc(slices.Collect(slices.Chunk(t.Ints, 3)), func(k []int64) bool {
			return max(k[0], k[1]) >= int64(s.Global.Classes)
		})
	}
	for _, r := range replies {
		some := false
		for _, name := range []string{globalCounts, personalCounts} {
			if t := r.Upload.Extra[name]; t != nil && !foreign(t) {
				parts[name], some = append(parts[name], t), true
			}
		}
		if some {
			out.Clients++
		}
	}
	if out.Clients == 0 {
		return nil
	}
	if list := parts[globalCounts]; list != nil {
		out.Global = matrix(list, s.Global.Classes)
	}
	if list := parts[personalCounts]; list != nil {
		out.Personal = matrix(list, s.Global.Classes)
	}
	return out
}

// keepConfusion writes the confusion matrix of a round that may be the result, before the round counts.
func (e *Experiment) keepConfusion(set Settings, s *Server, round int) error {
	if s.Confusion == nil || s.Confusion.Round != round {
		return nil
	}
	s.Confusion.Classes = e.Classes
	if set.Dir == "" {
		return nil
	}
	b, err := json.Marshal(s.Confusion)
	if err != nil {
		return err
	}
	return atomicfile.Write(filepath.Join(set.Dir, ConfusionFile), func(w io.Writer) error {
		_, err := w.Write(append(b, '\n'))
		return err
	})
}

package partition

import (
	"fmt"

	"promptfed/federation/data"
)

// Classes returns the labels of one part of n classes, as in CoOp and CoCoOp: all, base (the first half, rounded up) or
// new (the others).
func Classes(n int, part string) ([]int, error) {
	if err := data.OneOf("data.classes", part, "all", "base", "new"); err != nil {
		return nil, err
	}
	from, to := 0, n
	switch part {
	case "base":
		to = (n + 1) / 2
	case "new":
		from = (n + 1) / 2
	}
	if from >= to {
		return nil, fmt.Errorf("data.classes: %d classes leave none for the part %q: set it to all", n, part)
	}
	out := make([]int, to-from)
	for i := range out {
		out[i] = from + i
	}
	return out, nil
}

// ClassSubset returns the set of one part of the classes, with labels counted from 0; s is unchanged. See Classes.
func ClassSubset(s *data.Set, part string) (*data.Set, error) {
	labels, err := Classes(len(s.Classes), part)
	if err != nil {
		return nil, err
	}
	out := *s
	first := labels[0]
	out.Classes = s.Classes[first : first+len(labels)]
	if s.Coarse != nil {
		out.Coarse = s.Coarse[first : first+len(labels)]
	}
	for _, l := range []*[]data.Example{&out.Train, &out.Val, &out.Test, &out.Pool} {
		if *l == nil {
			continue
		}
		kept := []data.Example{}
		for _, e := range *l {
			if e.Label >= first && e.Label < first+len(labels) {
				e.Label -= first
				kept = append(kept, e)
			}
		}
		*l = kept
	}
	return &out, nil
}

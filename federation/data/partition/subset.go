package partition

import (
	"slices"
	"strings"

	"promptfed/federation/configtags"
	"promptfed/federation/data"
	"promptfed/runtime/tensor"
)

// classRange returns the range [from, to) of the labels of one part of n classes, as in CoOp and CoCoOp: all, base (the
// first half, rounded up) or new (the others).
func classRange(n int, part string) (from, to int, err error) {
	if err := data.OneOf("data.classes", part, "all", "base", "new"); err != nil {
		return 0, 0, err
	}

	to = n
	switch part {
	case "base":
		to = (n + 1) / 2
	case "new":
		from = (n + 1) / 2
	}

	if from >= to {
		return 0, 0, configtags.KeyErrorf("data.classes", "%d classes leave none for the part %q: set it to all", n,
			part)
	}

	return from, to, nil
}

// ClassSubset returns the set of one part of the classes, with labels counted from 0; s is unchanged. See classRange.
func ClassSubset(s *data.Set, part string) (*data.Set, error) {
	from, to, err := classRange(len(s.Classes), part)
	if err != nil {
		return nil, err
	}

	out := *s
	out.Classes = s.Classes[from:to]
	if s.Coarse != nil {
		out.Coarse = s.Coarse[from:to]
	}

	for _, examples := range []*[]data.Example{&out.Train, &out.Val, &out.Test, &out.Pool} {
		if *examples == nil {
			continue
		}
		kept := []data.Example{}
		for _, e := range *examples {
			if e.Label >= from && e.Label < to {
				e.Label -= from
				kept = append(kept, e)
			}
		}
		*examples = kept
	}

	return &out, nil
}

// keptDomains returns the indices of the domains that are not left out; for a set without domains, only 0.
func (p Config) keptDomains(s *data.Set) []int {
	if len(s.Domains) == 0 {
		return []int{0}
	}

	return slices.DeleteFunc(tensor.Indices(len(s.Domains)), func(d int) bool {
		return slices.Contains(p.LeaveOut, s.Domains[d])
	})
}

func checkLeaveOut(config Config, set *data.Set) error {
	for _, name := range config.LeaveOut {
		if len(set.Domains) == 0 {
			return configtags.KeyErrorf("partition.leave_out", "%q: the set %s has no domains", name, set.Name)
		}
		if !slices.Contains(set.Domains, name) {
			return configtags.KeyErrorf("partition.leave_out", "%q is not a domain of %s: its domains are %s", name,
				set.Name, strings.Join(set.Domains, ", "))
		}
	}

	if len(config.keptDomains(set)) == 0 {
		return configtags.KeyErrorf("partition.leave_out", "no domain is left for the clients: hold out fewer of %s",
			strings.Join(set.Domains, ", "))
	}

	return nil
}

// LeftOut returns the examples that no client gets: for every domain of partition.leave_out, in the set's order, its
// examples in each list of the set. For a pooled set all of them are Test, as indices into Set.Pool. Domain is the
// domain's name.
func LeftOut(p Config, set *data.Set) ([]Client, error) {
	if err := checkLeaveOut(p, set); err != nil {
		return nil, err
	}

	var out []Client
	for d, name := range set.Domains {
		if !slices.Contains(p.LeaveOut, name) {
			continue
		}
		c := Client{Domain: name}
		for _, sp := range set.Splits() {
			to := c.In(sp.Name)
			for i, e := range *sp.Examples {
				if e.Domain == d {
					*to = append(*to, i)
				}
			}
		}
		out = append(out, c)
	}

	return out, nil
}

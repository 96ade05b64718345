package partition

import (
	"slices"

	"promptfed/federation/data"
)

// LeftOut returns the examples that no client gets: for every domain of partition.leave_out, in the set's order, its
// examples in each list of the set. For a pooled set all of them are Test, as indices into Set.Pool. Domain is the
// domain's name.
func LeftOut(p Config, s *data.Set) ([]Client, error) {
	if err := checkLeaveOut(p, s); err != nil {
		return nil, err
	}
	var out []Client
	for d, name := range s.Domains {
		if !slices.Contains(p.LeaveOut, name) {
			continue
		}
		c := Client{Domain: name}
		for _, sp := range s.Splits() {
			to := map[string]*[]int{"train": &c.Train, "val": &c.Val, "test": &c.Test, "pool": &c.Test}[sp.Name]
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

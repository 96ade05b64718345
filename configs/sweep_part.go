package configs

import "fmt"

// Part is the part of the cells of a sweep that one of several processes runs: every Of-th cell from a first one. The
// zero value stands for all cells.
type Part struct{ part, Of int }

func (p *Part) String() string {
	if p.Of == 0 {
		return ""
	}
	return fmt.Sprintf("%d/%d", p.part, p.Of)
}

func (*Part) Type() string { return "I/N" }

// Set parses I/N.
func (p *Part) Set(text string) error {
	var q Part
	if _, err := fmt.Sscanf(text, "%d/%d", &q.part, &q.Of); err != nil || q.Of < 1 || q.String() != text {
		return fmt.Errorf("%q: expected I/N, as in 0/8", text)
	}
	if q.part < 0 || q.part >= q.Of {
		return fmt.Errorf("%q: parts of %d are numbered from 0 to %d", text, q.Of, q.Of-1)
	}
	*p = q
	return nil
}

// Name returns the name of the lock of the part.
func (p Part) Name() string {
	if p.Of == 0 {
		return ""
	}
	return fmt.Sprintf("%d-of-%d", p.part, p.Of)
}

// Cells returns the cells of the part, in the order of the sweep. Neighbours, which mostly have the same method, are in
// different parts.
func (p Part) Cells(all []Cell) (out []Cell) {
	for i, c := range all {
		if p.Of == 0 || i%p.Of == p.part {
			out = append(out, c)
		}
	}
	return out
}

package configs

import "fmt"

// Part is the part of a sweep's cells that one program of several does: each Of-th cell from a first one on. The zero
// value is all of them.
type Part struct{ part, Of int }

func (p *Part) String() string {
	if p.Of == 0 {
		return ""
	}
	return fmt.Sprintf("%d/%d", p.part, p.Of)
}

func (*Part) Type() string { return "I/N" }

// Set reads I/N.
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

// Name is what the lock of the part is called.
func (p Part) Name() string {
	if p.Of == 0 {
		return ""
	}
	return fmt.Sprintf("%d-of-%d", p.part, p.Of)
}

// Cells are those of the part, in the order of the sweep. Neighbours, which are of one method mostly, go to different
// parts.
func (p Part) Cells(all []Cell) (out []Cell) {
	for i, c := range all {
		if p.Of == 0 || i%p.Of == p.part {
			out = append(out, c)
		}
	}
	return out
}

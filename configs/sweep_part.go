package configs

import (
	"fmt"
)

// Part is the part of a sweep's cells that one program of several does: each Of-th cell from a first one on. The zero
// value is all of them.
type Part struct{ part, Of int }

func (a *Part) String() string {
	if a.Of == 0 {
		return ""
	}
	return fmt.Sprintf("%d/%d", a.part, a.Of)
}

func (*Part) Type() string { return "I/N" }

// Set reads I/N.
func (a *Part) Set(text string) error {
	var p Part
	if n, err := fmt.Sscanf(text, "%d/%d", &p.part, &p.Of); err != nil || n != 2 || p.String() != text {
		return fmt.Errorf("%q: give I/N, as in 0/8", text)
	}
	if p.Of < 1 || p.part < 0 || p.part >= p.Of {
		return fmt.Errorf("%q: parts of %d are numbered from 0 to %d", text, p.Of, p.Of-1)
	}
	*a = p
	return nil
}

// Name is what the lock of the part is called.
func (a Part) Name() string {
	if a.Of == 0 {
		return ""
	}
	return fmt.Sprintf("%d-of-%d", a.part, a.Of)
}

// Cells are those of the part, in the order of the sweep. Neighbours, which are of one method mostly, go to different
// parts.
func (a Part) Cells(all []Cell) (out []Cell) {
	for i, c := range all {
		if a.Of == 0 || i%a.Of == a.part {
			out = append(out, c)
		}
	}
	return out
}

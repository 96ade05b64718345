package command

import (
	"fmt"

	"promptfed/configs"
)

// arrayPart is the part of a sweep's cells that one program of several does: every one of of cells, from part on. The
// zero value is all of them.
type arrayPart struct{ part, of int }

func (a *arrayPart) String() string {
	if a.of == 0 {
		return ""
	}
	return fmt.Sprintf("%d/%d", a.part, a.of)
}

func (*arrayPart) Type() string { return "I/N" }

// Set reads I/N.
func (a *arrayPart) Set(text string) error {
	var p arrayPart
	if n, err := fmt.Sscanf(text, "%d/%d", &p.part, &p.of); err != nil || n != 2 || p.String() != text {
		return fmt.Errorf("%q: give I/N, as in 0/8", text)
	}
	if p.of < 1 || p.part < 0 || p.part >= p.of {
		return fmt.Errorf("%q: parts of %d are numbered from 0 to %d", text, p.of, p.of-1)
	}
	*a = p
	return nil
}

// name is what the lock of the part is called.
func (a arrayPart) name() string {
	if a.of == 0 {
		return ""
	}
	return fmt.Sprintf("%d-of-%d", a.part, a.of)
}

// cells are those of the part, in the order of the sweep. Neighbours, which are of one method mostly, go to different
// parts.
func (a arrayPart) cells(all []configs.Cell) (out []configs.Cell) {
	for i, c := range all {
		if a.of == 0 || i%a.of == a.part {
			out = append(out, c)
		}
	}
	return out
}

// Package figures draws the kinds of figures that papers on federated prompt learning have, from plain numbers: it
// reads no run folder and prints nothing. A kind is a struct with the numbers, and Draw makes a Figure of it; Save
// writes the figure as PNG and SVG. The same numbers give the same bytes.
package figures

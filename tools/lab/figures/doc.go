// Package figures draws the figures of papers on federated prompt learning from plain numbers. It reads no run folder
// and prints nothing. Each kind of figure is a struct with its numbers. Draw lays it out as a Figure, and Save writes
// PNG and SVG. The same numbers produce the same bytes.
package figures

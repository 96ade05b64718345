// Package page writes one self-contained HTML page about runs and sweeps: a table of all runs, tables that sort and
// copy, curves, the drawings of figures, configurations side by side, and each run with its clients, classes, terms and
// log. The page asks for nothing outside itself, unless a server keeps it current.
package page

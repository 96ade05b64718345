// Package page writes one self-contained HTML page about runs and sweeps: a table of all runs, tables that sort and
// copy, curves, figures, configurations side by side, and each run with its clients, classes, terms and log. The page
// loads nothing from outside, unless a server keeps it current.
package page

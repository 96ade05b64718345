// Package tables lays results out as papers do, axes in rows and columns, mean and sample standard deviation over
// seeds, the best of each comparison in bold and the paper's own number beside ours, and writes them as Markdown,
// LaTeX, CSV and plain text.
package tables

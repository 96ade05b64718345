// Package tables lays out results as papers do: axes in rows and columns, mean and sample standard deviation over
// seeds, the best of each comparison in bold, and the paper's number beside ours. It writes tables as Markdown, LaTeX,
// CSV and plain text.
package tables

package main

import (
	"fmt"
	"io"
	"path/filepath"

	"promptfed/runtime/atomicfile"
)

// writeReport writes the comparison of several runs as Markdown, with its plot.
func writeReport(dir string, runs []outcome) error {
	return atomicfile.Write(filepath.Join(dir, "report.md"), func(w io.Writer) error {
		_, err := fmt.Fprintf(w, "# Comparison\n\n```\n%s```\n\nAccuracy: mean over clients, each tested as its method says; "+
			"mean over the last tested rounds that `eval.last` asks for. `best` is chosen on the test data itself.\n\n"+
			"![accuracy by round](plots/comparison.svg)\n", resultTable(runs))
		return err
	})
}

// Package report has the commands for finished runs: reports, lists of runs, the web page, predictions, exports, and
// the terms of a loss. It may import every layer and tools/lab; its Outputs are what the commands that train know of
// tools/lab.
package report

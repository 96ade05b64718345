// Package report makes the reports of finished and running experiments: tables, tests, figures and one page with all of
// it, from run folders. A package for each step lies below it: results reads folders and computes metrics over seeds,
// stats tests differences, tables and figures lay them out, page puts everything on one web page, which ui serves live,
// and tensorboard writes event files for another program.
package report

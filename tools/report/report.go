// Package report is the reporting of finished and running experiments, a package for each step from run folders to what
// people read: results reads folders and computes metrics over seeds, stats tests differences, tables and figures lay
// them out, page puts everything on one web page, which ui serves live, and tensorboard writes event files for another
// program.
package report

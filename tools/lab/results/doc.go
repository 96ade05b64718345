// Package results reads the folders of runs and sweeps, groups runs that differ only in the seed, and computes the data
// of tables, figures and reports: metrics with their mean and standard deviation over seeds, curves, values per client,
// and tests between methods over pairs of runs.
//
// Its input files may come from other programs or be incomplete. No content makes it panic, unusable content becomes a
// note of one line, and it reads no file beyond a limit.
package results

// Package results reads the folders that runs and sweeps leave, puts runs that differ in nothing but the seed together,
// and computes from them what tables, figures and reports show: metrics with their mean and standard deviation over
// seeds, curves, values per client, and tests between methods over pairs of runs.
//
// It reads files that other programs may have written, or half written: nothing in them makes it panic, what cannot be
// used becomes a note of one line, and no file is read beyond a limit.
package results

// Package report makes the reports of finished and running experiments from run folders: tables, tests, figures and one
// page with all of them. Each step has its own package: results reads folders and computes metrics over seeds, stats
// tests differences, tables and figures lay them out, page writes one web page, and ui serves it live.
package report

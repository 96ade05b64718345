// Package numbers lists every number that runs wrote down, one a line, for programs that read tables: CSV and Parquet
// files, and what experiment trackers are sent. It knows no key of rounds.jsonl and summary.json, so that a new one is
// listed too.
package numbers

// Package numbers lists every recorded number of runs, one per line, for programs that read tables (CSV and Parquet
// files) and for experiment trackers. It knows no key of rounds.jsonl and summary.json, so it lists new keys too.
package numbers

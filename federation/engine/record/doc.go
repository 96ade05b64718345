// Package record is what a run writes down for people and programs: a Record a round (rounds.jsonl), a Summary
// (summary.json), confusion matrices, and the choice of the round that is the result.
package record

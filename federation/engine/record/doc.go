// Package record has the records of a run: a Record for each round (rounds.jsonl), a Summary (summary.json), confusion
// matrices, and the choice of the round that is the result. It may import federation/method, federation/engine/message,
// federation/engine/metrics and federation/engine/simulatedtime.
package record

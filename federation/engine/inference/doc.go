// Package inference uses what a finished run learned: it predicts, exports classifiers and gives class features.
package inference

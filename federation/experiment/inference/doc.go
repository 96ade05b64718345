// Package inference uses a finished run, with what its clients or all of them together learned: it classifies images,
// exports classifiers as ONNX models, and gives class features. It needs the run folder and the backbone, not the data,
// and may import experiment and all that it imports.
package inference

// Package bundle represents a frozen CLIP on disk, and supplies features of images, features of prompted texts, rows of
// the token embedding, a digest and a report.
//
// A folder has one of several formats. Each format is a package that implements Towers and is registered with
// RegisterFormat: models/bundle/converted writes and reads bundles that promptfed convert makes from a checkpoint, and
// models/bundle/exported reads ONNX files that other tools exported. These packages may import runtime and the other
// packages of models, but neither ONNX Runtime nor cgo.
package bundle

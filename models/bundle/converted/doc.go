// Package converted writes and reads the bundle that promptfed makes from a checkpoint: a folder that any program with
// ONNX Runtime can use. It may import bundle, checkpoint and the packages below them.
//
//	bundle.json     description of the folder (Manifest)
//	image.onnx      pixels [B,3,S,S] -> image [B,D], patches [B,M,D]
//	text.onnx       embeddings [C,L,w], eot [C] (int64) -> text [C,D]
//	image-gradient.onnx, text-gradient.onnx: with Options.Gradients, see bundle.Box
//	tokenizer.json  the vocabulary, in Hugging Face's format
//	weights         .safetensors files, to which the two graphs and bundle.json refer
//
// Features are not normalised: divide by the Euclidean norm before a comparison. Pixels are normalised as bundle.json
// states. embeddings are rows of the token embedding, without positions, of whole sequences [SOS ... EOT], padded with
// any rows to the context length L; eot is the index at which the features are read.
//
// Weights stay in the checkpoint's files if possible: float32 .safetensors files are hard links to them (copies across
// file systems), so the checkpoint's files must not be changed in place; opening a bundle compares sizes and contents
// (bundle.Verify). All other weights are converted to float32 once, since ONNX Runtime would otherwise keep a converted
// copy in every session.
package converted

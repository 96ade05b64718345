// Package safetensors reads and writes the safetensors format: an 8-byte little-endian header length, a JSON header of
// name -> {dtype, shape, data_offsets}, and the raw little-endian row-major elements of all tensors. It may import
// runtime/atomicfile and runtime/tensor. Reading is lazy, and the absolute offsets are public, so an ONNX model can use
// the file as external data. Format: https://github.com/huggingface/safetensors, "Format".
//
// github.com/nlpodyssey/safetensors does not fit: it has no released module version, hides the offset of the data,
// seeks on one shared handle (so no concurrent loads), takes the last of two equal names, and does not compare the end
// of the last tensor with the end of the file.
package safetensors

// Package preprocess converts image files to the pixels that a CLIP image tower expects: decode, resize, centre crop,
// scale, normalise, byte for byte as Pillow and torchvision in the published code. It may import runtime/graph,
// runtime/onnx, runtime/ops and runtime/tensor.
//
// Two properties of the published code are kept on purpose: alpha is dropped, not blended, and EXIF orientation is not
// applied. All differences are in decoding. Lossless formats give Pillow's bytes, except that 16-bit grey keeps its
// high byte, where Pillow clips every value at 255 and shows white, and that a GIF is its first frame without the
// surrounding canvas. JPEG and lossy WebP repeat chroma samples, which Pillow's libraries interpolate: the difference
// is 0.3 levels on average and at most 6 on ten PACS images resized to 32 x 32, up to 7 on a steep gradient at full
// size, and at most 2 without chroma subsampling (TestLossy, TestJPEGAgainstPillow).
package preprocess

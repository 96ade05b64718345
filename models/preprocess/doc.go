// Package preprocess converts image files to the pixels that a CLIP image tower expects: decode, resize, centre crop,
// scale, normalise, byte for byte as torchvision and Pillow before 12.2 in the published code. Later versions of Pillow
// resize the height of some tall images first, which changes levels (13.0.0: by 21 on noise that is enlarged to a
// square). It may import runtime/graph, runtime/onnx, runtime/ops and runtime/tensor.
//
// Two properties of the published code are kept on purpose: alpha is dropped, not blended, and EXIF orientation is not
// applied. All other differences are in decoding. Lossless formats give Pillow's bytes, except that 16-bit grey keeps
// its high byte, where Pillow clips every value at 255 and shows white, that a GIF is its first frame without the
// surrounding canvas, with black where it is transparent, and that Pillow applies the orientation of a TIFF. JPEG and
// lossy WebP repeat chroma samples, which Pillow's libraries interpolate: the difference is 0.3 levels on average and
// at most 6 on ten PACS images resized to 32 x 32, up to 7 on a steep gradient at full size, and at most 2 without
// chroma subsampling (TestLossy, TestJPEGAgainstPillow).
package preprocess

package inference

import (
	"context"
	"fmt"
	"math"

	"promptfed/runtime/atomicfile"
	"promptfed/runtime/onnx"
	"promptfed/runtime/ort"
	"promptfed/runtime/tensor"
)

// Forms of an exported classifier's input.
const (
	PixelsUint8 = "uint8" // [B,H,W,3], decoded red, green and blue
	PixelsFloat = "float" // float32 [B,3,H,W] in [0,1], as torchvision's ToTensor gives; rounded to 8 bits first
)

// Names of an exported classifier's input and output [B,C].
const (
	ClassifierInput  = "pixels"
	ClassifierOutput = "probabilities"
)

// Export writes the classifier as one ONNX file at out: pixels of any size in, probabilities of the classes out.
// Preprocessing, image tower and class features are inside; the text tower is not needed. The file is run once before
// it replaces an older one. Export returns the size of the file in bytes.
func (f *Classifier) Export(ctx context.Context, pixels, out string) (int64, error) {
	m, err := f.model(ctx, pixels)
	if err != nil {
		return 0, fmt.Errorf("%s of %s: %w", f.Choice, f.dir, err)
	}
	if m.MetadataProps, err = f.metadata(pixels); err != nil {
		return 0, err
	}
	encoded, err := onnx.Marshal(m)
	if err != nil {
		return 0, fmt.Errorf("%s: %w", out, err)
	}
	if err := f.try(ctx, m); err != nil {
		return 0, fmt.Errorf("%s: the exported classifier does not run: %w", out, err)
	}
	return int64(len(encoded)), atomicfile.Write(out, atomicfile.Bytes(encoded))
}

// try runs an exported classifier on one small image.
func (f *Classifier) try(ctx context.Context, model *onnx.ModelProto) error {
	s, err := ort.NewSession(model, ort.Options{})
	if err != nil {
		return err
	}
	defer s.Close()
	in := s.Inputs()[0]
	shape := make([]int, len(in.Shape))
	for i, d := range in.Shape {
		if shape[i] = d.Size; d.Size < 0 {
			shape[i] = 2 + i
		}
	}
	image := tensor.New(shape...)
	if in.IsInt() {
		image = tensor.OfInts(make([]int64, image.Len()), shape...)
	}
	out, err := s.Run(ctx, tensor.Map{ClassifierInput: image})
	if err != nil {
		return err
	}
	for i := range shape[0] {
		sum := 0.0
		for _, v := range out[ClassifierOutput].Row(i).Data {
			sum += float64(v)
		}
		if !(math.Abs(sum-1) < 1e-3) {
			return fmt.Errorf("its probabilities add up to %v, not to 1", sum)
		}
	}
	return nil
}

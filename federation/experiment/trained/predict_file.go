package trained

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"image"
	"slices"

	"promptfed/federation/data"
	"promptfed/models/preprocess"
	"promptfed/runtime/onnx"
	"promptfed/runtime/ort"
	"promptfed/runtime/tensor"
)

// PredictFile classifies images with a file that Export wrote.
func PredictFile(ctx context.Context, path string, images []data.Example, o ort.Options) (classes []string,
	out []Prediction, err error) {
	s, classes, err := openClassifier(path, o)
	if err != nil {
		return nil, nil, err
	}
	defer s.Close()
	// of one image, where the batch is fixed
	form, copies := s.Inputs()[0].Type, make([]int, max(1, s.Inputs()[0].Shape[0].Size))
	prepare := func(_ int, img image.Image) (*tensor.Tensor, error) {
		if size := img.Bounds().Size(); size.X*size.Y > maxPixels/len(copies) {
			return nil, fmt.Errorf("an image of %d x %d is too large for %s, which computes batches of %d; resize it",
				size.X, size.Y, path, len(copies))
		}
		return pixelsOf(img, form).Rows(copies), nil
	}
	err = data.Decode(ctx, images, 1, data.Refuse, preprocess.Decode, prepare, func(i int, pixels *tensor.Tensor,
		_ *data.BadImage) error {
		got, err := s.Run(ctx, tensor.Map{ClassifierInput: pixels})
		if err != nil {
			return fmt.Errorf("%s: %w", images[i].Name(), err)
		}
		out = append(out, Prediction{images[i].Name(), got[ClassifierOutput].Row(0).Data})
		return nil
	})
	return classes, out, err
}

// openClassifier compiles a file that Export wrote.
func openClassifier(path string, o ort.Options) (*ort.Session, []string, error) {
	model, err := onnx.ReadFile(path)
	if err != nil {
		return nil, nil, fmt.Errorf("%w; give a run folder, or a classifier that promptfed export wrote", err)
	}
	classes, err := classifierClasses(model)
	if err != nil {
		return nil, nil, fmt.Errorf("%s: %w", path, err)
	}
	s, err := ort.NewSession(model, o)
	if err != nil {
		return nil, nil, fmt.Errorf("%s: %w", path, err)
	}
	if err := checkInputs(s.Inputs(), s.Outputs(), len(classes)); err != nil {
		return nil, nil, errors.Join(fmt.Errorf("%s: %w", path, err), s.Close())
	}
	return s, classes, nil
}

// Bounds of the memory that a file can ask for.
const (
	maxFixedBatch = 1 << 10
	maxPixels     = 1 << 27 // of a batch
)

// notOurs is the error of a file that Export did not write.
const notOurs = "it is not a classifier that promptfed export wrote: %s"

// classifierClasses reads the class names of an exported classifier.
func classifierClasses(m *onnx.ModelProto) (classes []string, err error) {
	i := slices.IndexFunc(m.MetadataProps, func(p *onnx.StringStringEntryProto) bool { return p.Key == MetaClasses })
	if i < 0 {
		return nil, fmt.Errorf(notOurs, "its metadata has no "+MetaClasses)
	}
	if err := json.Unmarshal([]byte(m.MetadataProps[i].Value), &classes); err != nil || len(classes) == 0 {
		return nil, fmt.Errorf(notOurs, "the "+MetaClasses+" of its metadata are not a list of names")
	}
	return classes, nil
}

func checkInputs(in, out []ort.ValueInfo, classes int) error {
	if len(in) != 1 || in[0].Name != ClassifierInput || len(in[0].Shape) != 4 {
		return fmt.Errorf(notOurs, "its only input must be "+ClassifierInput+" of rank 4")
	}
	colours := 1
	if in[0].IsInt() {
		colours = 3
	}
	if in[0].Shape[colours].Size != 3 || in[0].Shape[0].Size > maxFixedBatch {
		return fmt.Errorf(notOurs, fmt.Sprintf("its input is %v, which is not RGB images", in[0]))
	}
	if len(out) != 1 || out[0].Name != ClassifierOutput || len(out[0].Shape) != 2 || out[0].Shape[1].Size != classes {
		return fmt.Errorf(notOurs, fmt.Sprintf("its only output must be %s [B,%d]", ClassifierOutput, classes))
	}
	return nil
}

// pixelsOf is one image in the form of an exported classifier's input.
func pixelsOf(img image.Image, form onnx.TensorProto_DataType) *tensor.Tensor {
	rgb, w, h := preprocess.RGB(img)
	if form == onnx.TensorProto_FLOAT {
		t := tensor.New(1, 3, h, w)
		for i, v := range rgb {
			t.Data[i%3*w*h+i/3] = float32(v) / 255
		}
		return t
	}
	v := make([]int64, len(rgb))
	for i, b := range rgb {
		v[i] = int64(b)
	}
	return tensor.OfInts(v, 1, h, w, 3)
}

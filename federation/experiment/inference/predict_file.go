package inference

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

// File is an exported file, ready to run; safe for concurrent use.
type File struct {
	classes []string
	path    string
	about   []Fact
	session *ort.Session
}

// OpenFile compiles an exported file; the caller closes it.
func OpenFile(path string, options ort.Options) (*File, error) {
	model, err := onnx.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("%w; give a run folder, or a classifier that promptfed export wrote", err)
	}

	file := &File{path: path}
	for _, entry := range model.MetadataProps {
		file.about = append(file.about, Fact{entry.Key, entry.Value})
	}

	if file.classes, err = classifierClasses(model); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}

	if file.session, err = ort.NewSession(model, options); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}

	if err := checkInputs(file.session.Inputs(), file.session.Outputs(), len(file.classes)); err != nil {
		return nil, errors.Join(fmt.Errorf("%s: %w", path, err), file.session.Close())
	}

	return file, nil
}

func (f *File) Close() error { return f.session.Close() }

// About returns the metadata of the file, in its order. The error is always nil.
func (f *File) About() ([]Fact, error) { return f.about, nil }

// Classes returns the names of the classes, in the order of probabilities.
func (f *File) Classes() []string { return f.classes }

// Classify returns the probabilities of the classes for one image. A file for a fixed batch computes the image as often
// as it takes images at a time.
func (f *File) Classify(ctx context.Context, img image.Image) ([]float32, error) {
	in := f.session.Inputs()[0]
	copies := make([]int, max(1, in.Shape[0].Size))
	if size := img.Bounds().Size(); size.X*size.Y > maxBatch/len(copies) {
		return nil, fmt.Errorf("an image of %d x %d is too large for %s, which computes batches of %d; resize it",
			size.X, size.Y, f.path, len(copies))
	}

	got, err := f.session.Run(ctx, tensor.Map{ClassifierInput: pixelsOf(img, in.Type).Rows(copies)})
	if err != nil {
		return nil, err
	}

	return got[ClassifierOutput].Row(0).Data, nil
}

// Predict classifies image files, one at a time.
func (f *File) Predict(ctx context.Context, images []data.Example) (out []Prediction, err error) {
	asIs := func(_ int, img image.Image) (image.Image, error) { return img, nil } // pixels of one image at a time
	err = data.Decode(ctx, images, 1, data.Refuse, preprocess.Decode, asIs, func(i int, img image.Image,
		_ *data.BadImage) error {
		p, err := f.Classify(ctx, img)
		if err != nil {
			return fmt.Errorf("%s: %w", images[i].Name(), err)
		}
		out = append(out, Prediction{images[i].Name(), p})
		return nil
	})

	return out, err
}

// Bounds of the memory that a file can ask for.
const (
	maxFixedBatch = 1 << 10
	maxBatch      = 1 << 27 // pixels
)

// notOurs is the error of a file that Export did not write.
const notOurs = "it is not a classifier that promptfed export wrote: %s"

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

// pixelsOf returns one image in the form of an exported classifier's input.
func pixelsOf(img image.Image, form onnx.TensorProto_DataType) *tensor.Tensor {
	rgb, width, height := preprocess.RGB(img)
	if form == onnx.TensorProto_FLOAT {
		t := tensor.New(1, 3, height, width)
		for i, v := range rgb {
			t.Data[i%3*width*height+i/3] = float32(v) / 255
		}
		return t
	}

	v := make([]int64, len(rgb))
	for i, b := range rgb {
		v[i] = int64(b)
	}

	return tensor.OfInts(v, 1, height, width, 3)
}

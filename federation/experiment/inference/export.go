package inference

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"slices"
	"strconv"

	"promptfed/federation/engine/record"
	"promptfed/federation/experiment"
	"promptfed/federation/methods"
	"promptfed/runtime/atomicfile"
	"promptfed/runtime/onnx"
	"promptfed/runtime/ort"
	"promptfed/runtime/tensor"
	"promptfed/runtime/version"
)

const (
	PixelsUint8 = "uint8" // [B,H,W,3], decoded red, green and blue
	PixelsFloat = "float" // float32 [B,3,H,W] in [0,1], as torchvision's ToTensor gives; rounded to 8 bits first
)

const (
	ClassifierInput  = "pixels"        // name of the input, in one of the layouts above
	ClassifierOutput = "probabilities" // name of the output, float32 [B,C]
)

// Export writes the classifier as one ONNX file at out: pixels of any size in, probabilities of the classes out.
// Preprocessing, image tower and class features are inside; the text tower is not needed. The file is run once before
// it replaces an older one. Export returns the size of the file in bytes.
func (f *Classifier) Export(ctx context.Context, pixels, out string) (int64, error) {
	model, err := f.model(ctx, pixels)
	if err != nil {
		return 0, fmt.Errorf("%s of %s: %w", f.Choice, f.dir, err)
	}

	about, err := f.metadata(pixels)
	if err != nil {
		return 0, err
	}

	for _, fact := range about {
		model.MetadataProps = append(model.MetadataProps, &onnx.StringStringEntryProto{Key: fact.Key,
			Value: fact.Value})
	}

	encoded, err := onnx.Marshal(model)
	if err != nil {
		return 0, fmt.Errorf("%s: %w", out, err)
	}

	if err := f.try(ctx, model); err != nil {
		return 0, fmt.Errorf("%s: the exported classifier does not run: %w", out, err)
	}

	return int64(len(encoded)), atomicfile.Write(out, atomicfile.Bytes(encoded))
}

// try runs an exported classifier on one small image.
func (f *Classifier) try(ctx context.Context, model *onnx.ModelProto) error {
	session, err := ort.NewSession(model, ort.Options{})
	if err != nil {
		return err
	}
	defer session.Close()

	in := session.Inputs()[0]
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

	out, err := session.Run(ctx, tensor.Map{ClassifierInput: image})
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

// MetaClasses is the key of the metadata with the names of the classes: a JSON list, in the order of the output's
// columns.
const MetaClasses = "classes"

var inputLayouts = map[string]string{
	PixelsUint8: "uint8 [B,H,W,3], RGB from 0 to 255, images of any one size",
	PixelsFloat: "float32 [B,3,H,W], RGB in [0,1], images of any one size; values are rounded to 8 bits",
}

// Fact is one entry of the metadata of an exported file. A value that is no text is JSON.
type Fact struct{ Key, Value string }

// About returns the metadata that an exported file would have.
func (f *Classifier) About() ([]Fact, error) { return f.metadata(PixelsUint8) }

// metadata returns the origin of an exported classifier.
func (f *Classifier) metadata(pixels string) (list []Fact, err error) {
	config := f.config
	put := func(key string, value any) {
		text, isText := value.(string)
		if !isText {
			b, e := json.Marshal(value)
			if e != nil {
				err = fmt.Errorf("metadata %s: %w", key, e)
			}
			text = string(b)
		}
		list = append(list, Fact{key, text})
	}

	put("task", "image-classification")
	put(MetaClasses, f.classes)
	put("input", inputLayouts[pixels])
	put("preprocess", f.bundle.Preprocess) // what the graph does with the pixels, as in bundle.json
	put("backbone", f.bundle.Name)
	put("backbone_sha256", f.bundle.Digest())
	put("method", methods.Called(config.Method, config.Options))
	put("with", append([]string{}, config.With...)) // never null
	put("options", methods.ShortOptions(config.Options))
	put("run", config.Name)
	put("evaluation", f.Choice.view().String()) // global or personal: with whose parameters it classifies
	if f.Client >= 0 {
		put("client", f.Client)
	}

	put("clients", f.clients)
	records, recordsErr := record.Records(f.dir)
	if recordsErr != nil && !errors.Is(recordsErr, fs.ErrNotExist) {
		return nil, recordsErr
	}

	if recordsErr == nil {
		if best := record.BestVal(records, f.headline); config.Eval.Select == experiment.BestVal && best >= 0 {
			records = records[:best+1]
		}
		put("rounds", len(records)) // that made it
	}

	put("seed", strconv.FormatUint(config.Seed, 10))
	if f.Data != (DataSet{}) {
		put("data", f.Data.Name)
		put("data_sha256", f.Data.Digest) // as in provenance.json
	}

	for _, r := range slices.Backward(records) {
		if accuracy, ok := f.accuracy(r); ok {
			put("accuracy", accuracy) // of this client on its own test data, or the mean over all clients
			put("accuracy_round", r.Round+1)
			break
		}
	}

	put("promptfed", version.String())
	return list, err
}

// accuracy returns the result of the run's evaluation of this classifier in a round; false if there is none, as of
// copies that were fine-tuned for the evaluation.
func (f *Classifier) accuracy(round record.Record) (float64, bool) {
	switch {
	case f.Client < 0:
		if round.Evaluations.Global == nil {
			return 0, false
		}
		return round.Evaluations.Global.Accuracy(), true
	case !f.Global && f.has.Personal && f.config.Eval.FineTune > 0:
		return 0, false
	}

	return Accuracy(f.worker, f.client, f.clients, round)
}

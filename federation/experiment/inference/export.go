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

	if model.MetadataProps, err = f.metadata(pixels); err != nil {
		return 0, err
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

const (
	MetaTask       = "task"            // image-classification
	MetaClasses    = "classes"         // JSON list of names, in the order of the output's columns
	MetaInput      = "input"           // layout of the input
	MetaPreprocess = "preprocess"      // JSON object: what the graph does with the pixels, as in bundle.json
	MetaBackbone   = "backbone"        // name of the frozen encoders
	MetaDigest     = "backbone_sha256" // SHA-256 of its files
	MetaMethod     = "method"          // that the client learned with
	MetaWith       = "with"            // JSON list of the method's wrappers, inner to outer
	MetaOptions    = "options"         // JSON object: options of the method and its wrappers
	MetaRun        = "run"             // name of the run
	MetaEvaluation = "evaluation"      // global or personal: with whose parameters it classifies
	MetaClient     = "client"          // number, from 0; absent of a classifier for all
	MetaClients    = "clients"         // how many there were
	MetaRounds     = "rounds"          // that made it: with eval.select: best-val those up to the selected one
	MetaSeed       = "seed"            // of the run
	MetaData       = "data"            // name of the data set; only where the run folder has it
	MetaDataDigest = "data_sha256"     // as in provenance.json
	// of this client on its own test data, in [0,1], or the mean over all clients; only where the run has it
	MetaAccuracy   = "accuracy"
	MetaAccuracyAt = "accuracy_round" // the round, from 0, that it was measured after
	MetaVersion    = "promptfed"      // version of the program
)

var inputLayouts = map[string]string{
	PixelsUint8: "uint8 [B,H,W,3], RGB from 0 to 255, images of any one size",
	PixelsFloat: "float32 [B,3,H,W], RGB in [0,1], images of any one size; values are rounded to 8 bits",
}

// Fact is one entry of the metadata of an exported file, with one of the keys above.
type Fact struct{ Key, Value string }

func facts(list []*onnx.StringStringEntryProto) []Fact {
	out := make([]Fact, len(list))
	for i, p := range list {
		out[i] = Fact{p.Key, p.Value}
	}
	return out
}

// About returns the metadata that an exported file would have.
func (f *Classifier) About() ([]Fact, error) {
	list, err := f.metadata(PixelsUint8)
	return facts(list), err
}

// metadata returns the origin of an exported classifier.
func (f *Classifier) metadata(pixels string) ([]*onnx.StringStringEntryProto, error) {
	config := f.config
	var list []*onnx.StringStringEntryProto
	var err error
	put := func(key string, value any) {
		text, isText := value.(string)
		if !isText {
			b, e := json.Marshal(value)
			if e != nil {
				err = fmt.Errorf("metadata %s: %w", key, e)
			}
			text = string(b)
		}
		list = append(list, &onnx.StringStringEntryProto{Key: key, Value: text})
	}

	put(MetaTask, "image-classification")
	put(MetaClasses, f.classes)
	put(MetaInput, inputLayouts[pixels])
	put(MetaPreprocess, f.bundle.Preprocess)
	put(MetaBackbone, f.bundle.Name)
	put(MetaDigest, f.bundle.Digest())
	put(MetaMethod, methods.Called(config.Method, config.Options))
	put(MetaWith, append([]string{}, config.With...)) // never null
	put(MetaOptions, methods.ShortOptions(config.Options))
	put(MetaRun, config.Name)
	put(MetaEvaluation, f.Choice.view().String())
	if f.Client >= 0 {
		put(MetaClient, f.Client)
	}

	put(MetaClients, f.clients)
	records, recordsErr := record.Records(f.dir)
	if recordsErr != nil && !errors.Is(recordsErr, fs.ErrNotExist) {
		return nil, recordsErr
	}

	if recordsErr == nil {
		if best := record.BestVal(records, f.headline); config.Eval.Select == experiment.BestVal && best >= 0 {
			records = records[:best+1]
		}
		put(MetaRounds, len(records))
	}

	put(MetaSeed, strconv.FormatUint(config.Seed, 10))
	if f.Data != (DataSet{}) {
		put(MetaData, f.Data.Name)
		put(MetaDataDigest, f.Data.Digest)
	}

	for _, r := range slices.Backward(records) {
		if accuracy, ok := f.accuracy(r); ok {
			put(MetaAccuracy, accuracy)
			put(MetaAccuracyAt, r.Round)
			break
		}
	}

	put(MetaVersion, version.String())
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

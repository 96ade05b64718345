package inference

import (
	"encoding/json"
	"fmt"
	"slices"
	"strconv"

	"promptfed/federation/engine/record"
	"promptfed/federation/experiment"
	"promptfed/runtime/onnx"
	"promptfed/runtime/version"
)

// Keys of an exported classifier's metadata.
const (
	MetaTask       = "task"       // image-classification
	MetaClasses    = "classes"    // JSON list of names, in the order of the output's columns
	MetaInput      = "input"      // layout of the input
	MetaPreprocess = "preprocess" // JSON object: what the graph does with the pixels, as in bundle.json
	MetaBackbone   = "backbone"   // name of the frozen encoders
	MetaDigest     = "backbone_sha256"
	MetaMethod     = "method"     // that the client learned with
	MetaWith       = "with"       // JSON list of the method's wrappers, inner to outer
	MetaOptions    = "options"    // JSON object: options of the method and its wrappers
	MetaRun        = "run"        // name of the run
	MetaEvaluation = "evaluation" // global or personal: with whose parameters it classifies
	MetaClient     = "client"     // number, from 0; absent of a classifier for all
	MetaClients    = "clients"    // how many there were
	MetaRounds     = "rounds"     // that made it: with eval.select: best-val those up to the selected one
	MetaSeed       = "seed"
	MetaData       = "data"        // name of the data set; only where the run folder has it
	MetaDataDigest = "data_sha256" // as in provenance.json
	// of this client on its own test data, in [0,1], or the mean over all clients; only where the run has it
	MetaAccuracy   = "accuracy"
	MetaAccuracyAt = "accuracy_round" // the round, from 0, that it was measured after
	MetaVersion    = "promptfed"      // version of the program
)

// inputLayouts describes the forms of the input.
var inputLayouts = map[string]string{
	PixelsUint8: "uint8 [B,H,W,3], RGB from 0 to 255, images of any one size",
	PixelsFloat: "float32 [B,3,H,W], RGB in [0,1], images of any one size; values are rounded to 8 bits",
}

// Fact is one entry of a classifier's metadata.
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
	c := f.config
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
	with := c.With
	if with == nil {
		with = []string{}
	}
	put(MetaTask, "image-classification")
	put(MetaClasses, f.classes)
	put(MetaInput, inputLayouts[pixels])
	put(MetaPreprocess, f.bundle.Preprocess)
	put(MetaBackbone, f.bundle.Name)
	put(MetaDigest, f.bundle.Digest())
	put(MetaMethod, c.Method)
	put(MetaWith, with)
	put(MetaOptions, c.Options)
	put(MetaRun, c.Name)
	put(MetaEvaluation, f.Choice.view().String())
	if f.Client >= 0 {
		put(MetaClient, f.Client)
	}
	put(MetaClients, f.clients)
	records, recordsErr := record.Records(f.dir)
	if recordsErr == nil {
		if best := record.BestVal(records, f.headline); c.Eval.Select == experiment.BestVal && best >= 0 {
			records = records[:best+1]
		}
		put(MetaRounds, len(records))
	}
	put(MetaSeed, strconv.FormatUint(c.Seed, 10))
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
func (f *Classifier) accuracy(r record.Record) (float64, bool) {
	switch {
	case f.Client < 0:
		if r.Evaluations.Global == nil {
			return 0, false
		}
		return r.Evaluations.Global.Accuracy(), true
	case !f.Global && f.has.Personal && f.config.Eval.FineTune > 0:
		return 0, false
	}
	return Accuracy(f.worker, f.client, f.clients, r)
}

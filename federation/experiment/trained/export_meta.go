package trained

import (
	"encoding/json"
	"fmt"
	"strconv"

	"promptfed/federation/engine/inference"
	"promptfed/federation/engine/record"
	"promptfed/federation/methods"
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
	MetaMethod     = "method"  // that the client learned with
	MetaWith       = "with"    // JSON list of the method's wrappers, inner to outer
	MetaOptions    = "options" // JSON object: options of the method and its wrappers
	MetaRun        = "run"     // name of the run
	MetaClient     = "client"  // number, from 0
	MetaClients    = "clients" // how many there were
	MetaRounds     = "rounds"  // that made it: with eval.select: best-val those up to the selected one
	MetaSeed       = "seed"
	MetaAccuracy   = "accuracy"       // of this client on its own test data, in [0,1]; only where the run has it
	MetaAccuracyAt = "accuracy_round" // the round, from 0, that it was measured after
	MetaVersion    = "promptfed"      // version of the program
)

// inputLayouts says what the forms of the input hold.
var inputLayouts = map[string]string{
	PixelsUint8: "uint8 [B,H,W,3], RGB from 0 to 255, images of any one size",
	PixelsFloat: "float32 [B,3,H,W], RGB in [0,1], images of any one size; values are rounded to 8 bits",
}

// metadata says where an exported classifier is from.
func (f *finishedRun) metadata(dir, pixels string) ([]*onnx.StringStringEntryProto, error) {
	c := f.config
	options, err := methods.Resolve(c.Method, c.With, c.Options)
	if err != nil {
		return nil, err
	}
	var list []*onnx.StringStringEntryProto
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
	put(MetaOptions, options)
	put(MetaRun, c.Name)
	put(MetaClient, f.client.ID)
	put(MetaClients, f.clients)
	records, recordsErr := record.Records(dir)
	if recordsErr == nil {
		records = records[:inference.RoundsTrained(f.worker, f.client, f.clients, records, c.Evaluation(), c.Eval.View)]
		put(MetaRounds, len(records))
	}
	put(MetaSeed, strconv.FormatUint(c.Seed, 10))
	for i := len(records) - 1; i >= 0; i-- {
		if accuracy, ok := inference.Accuracy(f.worker, f.client, f.clients, records[i]); ok {
			put(MetaAccuracy, accuracy)
			put(MetaAccuracyAt, records[i].Round)
			break
		}
	}
	put(MetaVersion, version.String())
	return list, err
}

package identity

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// File is the file of a run folder with its identity.
const File = "experiment.json"

// version is the version of File; another one is refused.
const version = 1

// Identity says which experiment a run belongs to: it holds every value that can change a number of the run, except the
// seed. Runs are put together as seeds of one experiment only if their identities are equal.
//
// Paths, names of runs, the order of files and everything about execution (threads, processor, provider) are left out.
// Values of keys of the configuration are JSON; data, backbones and evaluation sets are SHA-256 digests of contents.
type Identity struct {
	Version     int    `json:"version"`
	Fingerprint string `json:"fingerprint"` // hash of Values
	Seed        uint64 `json:"seed"`        // of the run; not part of the identity
	// Evaluation is the hash of those values that decide on what is tested: equal for runs that may be compared.
	Evaluation string            `json:"evaluation"`
	Values     map[string]string `json:"values"`
	// Shown is what people read in place of a digest, by the key of the value.
	Shown map[string]string `json:"shown,omitempty"`
	// Unknown are values that the writer of the file could not know, such as the data of clients on other machines. A
	// run with such values is an experiment of its own.
	Unknown []string `json:"unknown,omitempty"`
}

// trainingOnly are keys of the data that change what clients train on, and not what is tested.
var trainingOnly = []string{"data.shots", "data.views", "data.template", "data.precision", "data.label_noise"}

// evaluating are the keys, or sections, that decide on what is tested and when, but for trainingOnly. They leave out
// how the tested parameters are made (eval.fine_tune too): runs are compared for that.
var evaluating = []string{"data", "partition", "classes", "eval.every", "eval.sets", "eval.new_clients",
	"eval.new_steps", "train.centralised", "reproduce"}

// Values are the values of an identity, and what people read in place of a digest, by key.
type Values struct{ values, shown map[string]string }

// NewValues returns no values.
func NewValues() Values { return Values{map[string]string{}, map[string]string{}} }

// Put sets a value. People read shown in its place, unless that is empty.
func (v Values) Put(key, value, shown string) {
	v.values[key] = value
	if shown != "" {
		v.shown[key] = shown
	}
}

// PutJSON sets a value as JSON: maps in the order of their keys, numbers in their shortest form.
func (v Values) PutJSON(key string, value any) error {
	text, err := json.Marshal(value)
	if err != nil {
		return fmt.Errorf("%s: %w", key, err)
	}
	v.Put(key, string(text), "")
	return nil
}

// Of returns the identity of values. unknown are the keys of values that are not known.
func Of(seed uint64, values Values, unknown ...string) Identity {
	var all, tested []string
	for _, key := range slices.Sorted(maps.Keys(values.values)) {
		line := key + "=" + values.values[key]
		all = append(all, line)
		if Within(key, evaluating) && !Within(key, trainingOnly) {
			tested = append(tested, line)
		}
	}

	return Identity{Version: version, Fingerprint: Digest(all)[:32], Seed: seed, Evaluation: Digest(tested)[:32],
		Values: values.values, Shown: values.shown, Unknown: unknown}
}

// Within reports whether a key is one of a list of keys and sections, or below one.
func Within(key string, list []string) bool {
	return slices.ContainsFunc(list, func(k string) bool { return key == k || strings.HasPrefix(key, k+".") })
}

// Digest is the SHA-256 of a list of texts, in hex: equal for equal lists only.
func Digest(list []string) string {
	h := sha256.New()
	for _, s := range list {
		fmt.Fprintf(h, "%q\n", s)
	}
	return hex.EncodeToString(h.Sum(nil))
}

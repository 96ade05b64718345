package experiment

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"promptfed/federation/configtags"
	"promptfed/federation/data"
	"promptfed/federation/methods"
	"promptfed/runtime/numerics"
)

const IdentityFile = "experiment.json"

// identityVersion is the version of IdentityFile; another one is refused.
const identityVersion = 1

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

// unidentifying are the keys of the configuration, or sections, that are not part of an Identity, and why.
var unidentifying = map[string]string{
	"name": "names the folder", "seed": "tells the runs of one experiment apart",
	"backbones": "digests", "synthetic": "digest", "eval.sets": "digests", "eval.sets_root": "digests",
	"data.root": "digest", "data.layout": "digest", "data.class_names": "classes", "data.corrupt": "digest",
	"data.duplicates": "digest", "data.seed": "digest", "data.generator": "digest",
	"simulated_time.file": "digest", "eval.zero_shot": "a warning", "eval.embeddings": "another file",
	"runtime": "execution",
}

// identifying are keys below unidentifying sections that are part of an Identity all the same.
var identifying = []string{"runtime.batch_clients"}

// trainingOnly are keys of the data that change what clients train on, and not what is tested.
var trainingOnly = []string{"data.shots", "data.views", "data.template", "data.precision", "data.label_noise"}

// evaluating are the keys, or sections, that decide on what is tested and when, but for trainingOnly.
var evaluating = []string{"data", "partition", "classes", "eval.every", "eval.sets", "eval.new_clients",
	"eval.new_steps", "eval.fine_tune", "train.centralised", "reproduce"}

// within reports whether a key is one of a list of keys and sections, or below one.
func within(key string, list []string) bool {
	return slices.ContainsFunc(list, func(k string) bool { return key == k || strings.HasPrefix(key, k+".") })
}

// IsIdentityKey reports whether a key of the configuration is part of an Identity as it is written.
func IsIdentityKey(key string) bool {
	return within(key, identifying) || !within(key, slices.Collect(maps.Keys(unidentifying)))
}

// Identity is the identity of an experiment that has been opened, with its data and its backbones on this machine.
func (b *Built) Identity(ctx context.Context, progress Progress) (Identity, error) {
	id, err := b.ofConfig()
	if err != nil {
		return id, err
	}
	id.put("data", b.DataDigest, "")
	id.put("classes", digestOf(b.classNames), CountInWords(len(b.classNames), "class"))
	var digests, names []string // in the order in which clients get them
	for _, name := range b.Config.Backbones {
		f := b.opened[name]
		text, err := tokens(f, b.classNames, b.Engine.Template)
		if err != nil {
			return id, err
		}
		digests = append(digests, digestOf([]string{f.Digest(), text, strconv.FormatFloat(f.LogitScale, 'g', -1, 64),
			strconv.FormatFloat(f.LogitBias, 'g', -1, 64), fmt.Sprintf("%+v", f.Preprocess)}))
		names = append(names, f.Name)
	}
	id.put("backbones", digestOf(digests), strings.Join(names, ", "))
	for _, s := range b.evaluationSets {
		if !s.other {
			continue // images of the data
		}
		digest, err := b.digestOfImages(ctx, s.examples, s.classes, progress)
		if err != nil {
			return id, fmt.Errorf("evaluation set %s: %w", s.name, err)
		}
		id.put("eval.sets."+s.name, digestOf(append([]string{s.template, digest}, s.classes...)), s.name)
	}
	if len(b.synthetic) > 0 {
		digest, err := b.digestOfImages(ctx, b.synthetic, b.classNames, progress)
		if err != nil {
			return id, ofSynthetic(err)
		}
		id.put("synthetic.data", digest, "")
		id.put("synthetic.epochs", strconv.Itoa(b.Config.Synthetic.Epochs), "")
	}
	id.hash()
	return id, nil
}

// ServerIdentity is the identity of an experiment whose clients are on other machines, after SetRunSpec: their data and
// backbones are unknown.
func (b *Built) ServerIdentity() (Identity, error) {
	id, err := b.ofConfig()
	if err != nil {
		return id, err
	}
	id.put("classes", digestOf(b.Engine.Classes), CountInWords(len(b.Engine.Classes), "class"))
	id.Unknown = []string{"backbones", "data"}
	id.hash()
	return id, nil
}

// ofConfig has the values of the resolved configuration. A section that is off has one value: that it is off.
func (b *Built) ofConfig() (Identity, error) {
	c := b.Config
	id := Identity{Version: identityVersion, Seed: c.Seed, Values: map[string]string{}, Shown: map[string]string{}}
	var off []string // sections, and their keys that say so
	var kept []string
	for _, s := range []struct {
		on           bool
		section, key string
	}{{c.Attack.Enabled(), "attack", "attack.kind"}, {c.SimulatedTime.Enabled(), "simulated_time",
		"simulated_time.speeds"}, {c.SecureAggregation.Enabled(), "secure_aggregation", "secure_aggregation.threshold"},
		{c.Data.LabelNoise.Enabled(), "data.label_noise", "data.label_noise.kind"}} {
		if !s.on {
			off, kept = append(off, s.section), append(kept, s.key)
		}
	}
	var err error
	for key, value := range configtags.Flatten(c) {
		switch {
		case !IsIdentityKey(key), within(key, off) && !slices.Contains(kept, key):
		case key == "options":
			err = id.putOptions(err, key, methods.ShortOptions(c.Options))
		default:
			err = id.putJSON(err, key, value)
		}
	}
	if p := b.Engine.SimulatedTime; p != nil && c.SimulatedTime.File != "" {
		id.put("simulated_time.file", digestOf([]string{fmt.Sprint(p.Speeds)}), c.SimulatedTime.File)
	}
	id.put("numerics", strconv.Itoa(numerics.Version), "")
	return id, err
}

// putOptions puts the options of a method and its wrappers, which lie below their names.
func (id *Identity) putOptions(err error, key string, options map[string]any) error {
	for name, v := range options {
		if below, ok := v.(map[string]any); ok {
			err = id.putOptions(err, key+"."+name, below)
		} else {
			err = id.putJSON(err, key+"."+name, v)
		}
	}
	return err
}

// putJSON puts a value as JSON: maps in the order of their keys, numbers in their shortest form.
func (id *Identity) putJSON(before error, key string, value any) error {
	text, err := json.Marshal(value)
	if err != nil && before == nil {
		before = fmt.Errorf("%s: %w", key, err)
	}
	id.put(key, string(text), "")
	return before
}

func (id *Identity) put(key, value, shown string) {
	id.Values[key] = value
	if shown != "" {
		id.Shown[key] = shown
	}
}

// hash fills in the hashes of the values.
func (id *Identity) hash() {
	var all, tested []string
	for _, key := range slices.Sorted(maps.Keys(id.Values)) {
		line := key + "=" + id.Values[key]
		all = append(all, line)
		if within(key, evaluating) && !within(key, trainingOnly) {
			tested = append(tested, line)
		}
	}
	id.Fingerprint, id.Evaluation = digestOf(all)[:32], digestOf(tested)[:32]
}

// digestOf is the SHA-256 of a list of texts, in hex: equal for equal lists only.
func digestOf(list []string) string {
	h := sha256.New()
	for _, s := range list {
		fmt.Fprintf(h, "%q\n", s)
	}
	return hex.EncodeToString(h.Sum(nil))
}

// images is a digest of the images of some splits: contents, and the names of split, class and domain. Names and order
// of files do not matter.
type images struct{ sums [][sha256.Size]byte }

func (m *images) add(list []data.Example, contents []data.ContentHash, split string, classes, domains []string) {
	for i, e := range list {
		domain := ""
		if len(domains) > 0 {
			domain = domains[e.Domain]
		}
		m.sums = append(m.sums, sha256.Sum256(fmt.Appendf(nil, "%x %q %q %q", contents[i], split, classes[e.Label],
			domain)))
	}
}

func (m *images) String() string {
	slices.SortFunc(m.sums, func(a, b [sha256.Size]byte) int { return bytes.Compare(a[:], b[:]) })
	h := sha256.New()
	for _, sum := range m.sums {
		h.Write(sum[:])
	}
	return hex.EncodeToString(h.Sum(nil))
}

// digestOfImages is images of one list, such as an evaluation set.
func (b *Built) digestOfImages(ctx context.Context, list []data.Example, classes []string, progress Progress) (string,
	error) {
	contents, err := b.contentsOf(ctx, list, progress)
	if err != nil {
		return "", err
	}
	var m images
	m.add(list, contents, "", classes, nil)
	return m.String(), nil
}

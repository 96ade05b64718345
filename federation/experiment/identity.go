package experiment

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"promptfed/federation/configtags"
	"promptfed/federation/data"
	"promptfed/federation/experiment/identity"
	"promptfed/federation/methods"
	"promptfed/runtime/numerics"
)

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
var identifying = []string{"runtime.batch_clients", "runtime.precision"}

// IsIdentityKey reports whether a key of the configuration is part of an Identity as it is written.
func IsIdentityKey(key string) bool {
	return identity.Within(key, identifying) || !identity.Within(key, slices.Collect(maps.Keys(unidentifying)))
}

// Identity is the identity of a task.
func (t *Task) Identity(ctx context.Context, progress Progress) (identity.Identity, error) {
	content, config := t.Data, t.Protocol.Config
	values, err := t.Protocol.values()
	if err != nil {
		return identity.Identity{}, err
	}

	values.Put("data", content.Digest, "")
	values.Put("classes", identity.Digest(content.classNames), CountInWords(len(content.classNames), "class"))
	var digests, names []string // in the order in which clients get them
	for _, f := range t.Backbones.named {
		text, err := tokens(f, content.classNames, t.Experiment.Template)
		if err != nil {
			return identity.Identity{}, err
		}
		digests = append(digests, identity.Digest([]string{f.Digest(), text, strconv.FormatFloat(f.LogitScale, 'g', -1,
			64), strconv.FormatFloat(f.LogitBias, 'g', -1, 64), fmt.Sprintf("%+v", f.Preprocess)}))
		names = append(names, f.Name)
	}

	values.Put("backbones", identity.Digest(digests), strings.Join(names, ", "))
	for _, s := range content.evaluationSets {
		if !s.other {
			continue // images of the data
		}
		digest, err := content.digestOfImages(ctx, s.examples, s.classes, progress)
		if err != nil {
			return identity.Identity{}, fmt.Errorf("evaluation set %s: %w", s.name, err)
		}
		values.Put("eval.sets."+s.name, identity.Digest(append([]string{s.template, digest}, s.classes...)), s.name)
	}

	if t.Programs != nil { // somebody may have changed them
		values.Put("runtime.programs", t.Programs.Digest, "")
	}

	if len(t.synthetic) > 0 {
		digest, err := content.digestOfImages(ctx, t.synthetic, content.classNames, progress)
		if err != nil {
			return identity.Identity{}, ofSynthetic(err)
		}
		values.Put("synthetic.data", digest, "")
		values.Put("synthetic.epochs", strconv.Itoa(config.Synthetic.Epochs), "")
	}

	return identity.Of(config.Seed, values), nil
}

// Identity is the identity of an experiment whose clients are on other machines, after RunsAs: their data and backbones
// are unknown.
func (p *Protocol) Identity() (identity.Identity, error) {
	v, err := p.values()
	if err != nil {
		return identity.Identity{}, err
	}
	v.Put("classes", identity.Digest(p.Experiment.Classes), CountInWords(len(p.Experiment.Classes), "class"))
	return identity.Of(p.Config.Seed, v, "backbones", "data"), nil
}

// values has the values of the resolved configuration. A section that is off has one value: that it is off.
func (p *Protocol) values() (identity.Values, error) {
	config, out := p.Config, identity.NewValues()
	var off []string // sections, and their keys that say so
	var kept []string
	for _, s := range []struct {
		on           bool
		section, key string
	}{{config.Attack.Enabled(), "attack", "attack.kind"}, {config.SimulatedTime.Enabled(), "simulated_time",
		"simulated_time.speeds"}, {config.SecureAggregation.Enabled(), "secure_aggregation",
		"secure_aggregation.threshold"},
		{config.Data.LabelNoise.Enabled(), "data.label_noise", "data.label_noise.kind"}} {
		if !s.on {
			off, kept = append(off, s.section), append(kept, s.key)
		}
	}

	values := config.Values()
	values["method"] = methods.Called(config.Method, config.Options)
	for key, value := range values {
		if !IsIdentityKey(key) || identity.Within(key, off) && !slices.Contains(kept, key) {
			continue
		}
		if err := out.PutJSON(key, value); err != nil {
			return out, err
		}
	}

	if t := p.Experiment.SimulatedTime; t != nil && config.SimulatedTime.File != "" {
		out.Put("simulated_time.file", identity.Digest([]string{fmt.Sprint(t.Speeds)}), config.SimulatedTime.File)
	}

	out.Put("numerics", strconv.Itoa(numerics.Version), "")
	return out, nil
}

// Values returns the values of a configuration by dotted key: the options of a method and its wrappers too, where they
// differ from the defaults.
func (c Config) Values() map[string]any {
	out := configtags.Flatten(c)
	delete(out, "options")
	var add func(at string, options map[string]any)
	add = func(at string, options map[string]any) {
		for name, v := range options {
			if below, ok := v.(map[string]any); ok {
				add(at+name+".", below)
			} else {
				out[at+name] = v
			}
		}
	}

	add("options.", methods.ShortOptions(c.Options))
	return out
}

// images is a digest of the images of some splits: contents, and the names of split, class and domain. Names and order
// of files do not matter.
type images struct{ sums [][sha256.Size]byte }

func (m *images) add(list []data.Example, split string, classes, domains []string) {
	for _, e := range list {
		domain := ""
		if len(domains) > 0 {
			domain = domains[e.Domain]
		}
		m.sums = append(m.sums, sha256.Sum256(fmt.Appendf(nil, "%x %q %q %q", e.ContentHash, split, classes[e.Label],
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
func (d *Data) digestOfImages(ctx context.Context, list []data.Example, classes []string, progress Progress) (string,
	error) {
	list, err := d.hashed(ctx, list, progress)
	if err != nil {
		return "", err
	}
	var m images
	m.add(list, "", classes, nil)
	return m.String(), nil
}

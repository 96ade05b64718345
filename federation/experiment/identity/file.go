package identity

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"promptfed/runtime/atomicfile"
	"promptfed/runtime/convert"
)

// Write writes File into a run folder, as indented JSON, in place of an older one.
func (id Identity) Write(dir string) error {
	return atomicfile.Write(filepath.Join(dir, File), atomicfile.JSON(id, "  "))
}

// maxSize is the size of the largest File that is read, in bytes.
const maxSize = 8 << 20

// Read reads the identity of a run folder; an error that is fs.ErrNotExist says that it has none.
func Read(dir string) (Identity, error) {
	var id Identity
	path := filepath.Join(dir, File)
	text, err := atomicfile.ReadAtMost(path, maxSize)
	if err != nil {
		return id, err
	}

	if err := json.Unmarshal(text, &id); err != nil {
		return Identity{}, fmt.Errorf("%s: %w", path, err)
	}

	if id.Version != version {
		return Identity{}, fmt.Errorf("%s has version %d, this program reads version %d: run the experiment again",
			path, id.Version, version)
	}

	if len(id.Values) == 0 {
		return Identity{}, fmt.Errorf("%s: it has no values: run the experiment again", path)
	}

	return Of(id.Seed, Values{id.Values, id.Shown}, id.Unknown...), nil
}

// Same reports whether two runs belong to one experiment, so that they may differ in the seed alone.
func (id Identity) Same(other Identity) bool {
	return id.Fingerprint == other.Fingerprint && len(id.Unknown) == 0 && len(other.Unknown) == 0
}

// Difference is a value that two identities have differently.
type Difference struct {
	Key  string
	A, B string // what people read; "none" where an identity lacks the key
}

// Differences lists the values that differ, sorted by key. A is the value of id and B that of other.
func (id Identity) Differences(other Identity) []Difference {
	both := []*Identity{&id, &other}
	return convert.Slice(DifferingKeys(both), func(key string) Difference {
		return Difference{key, id.ValueAmong(key, both), other.ValueAmong(key, both)}
	})
}

// DifferingKeys are the keys of values in which some identities differ, sorted.
func DifferingKeys(list []*Identity) []string {
	all := map[string]bool{}
	for _, id := range list {
		for key := range id.Values {
			all[key] = true
		}
	}

	var out []string
	for key := range all {
		for _, id := range list {
			if id.Values[key] != list[0].Values[key] {
				out = append(out, key)
				break
			}
		}
	}

	slices.Sort(out)
	return out
}

// ValueAmong returns the text of a value beside others of the same key: where two contents have one name, the beginning
// of the digest stands behind it.
func (id Identity) ValueAmong(key string, others []*Identity) string {
	text, value := id.show(key), id.Values[key]
	for _, o := range others {
		if o.Values[key] != value && o.show(key) == text && isDigest(value) {
			return text + " (" + short(value) + ")"
		}
	}
	return text
}

func (id Identity) show(key string) string {
	if s := id.Shown[key]; s != "" {
		return s
	}

	value, ok := id.Values[key]
	if !ok {
		return "none"
	}

	if text, err := strconv.Unquote(value); err == nil {
		return text
	}

	return short(value)
}

func isDigest(v string) bool {
	return len(v) == 64 && strings.Trim(v, "0123456789abcdef") == ""
}

func short(digest string) string {
	if isDigest(digest) {
		return "digest " + digest[:8]
	}
	return digest
}

// mostNamed is how many differing values an error names.
const mostNamed = 5

// CommonKeys leaves of some keys those that all identities have, as far as there are any: options that one method has
// and the other lacks say no more than the methods do.
func CommonKeys(keys []string, identities []*Identity) []string {
	common := slices.DeleteFunc(slices.Clone(keys), func(key string) bool {
		return slices.ContainsFunc(identities, func(id *Identity) bool {
			_, has := id.Values[key]
			return !has
		})
	})

	if len(common) > 0 {
		return common
	}

	return keys
}

// listed lists differences for an error, the first of each pair as there and the second as now.
func listed(there, now Identity, list []Difference) string {
	var parts []string
	keys := CommonKeys(convert.Slice(list, func(d Difference) string { return d.Key }), []*Identity{&there, &now})
	list = slices.DeleteFunc(list, func(d Difference) bool { return !slices.Contains(keys, d.Key) })
	for i, d := range list {
		if i == mostNamed {
			parts = append(parts, fmt.Sprintf("and %d more", len(list)-i))
			break
		}
		parts = append(parts, fmt.Sprintf("%s is %.80s there, %.80s now", d.Key, d.A, d.B))
	}

	return strings.Join(parts, "; ")
}

// Continue refuses to go on with a run whose folder holds another experiment, and names the keys. More rounds than the
// run was to have are allowed, and as many or fewer as long as no finished round is lost. done is the number of
// finished rounds.
func (id Identity) Continue(dir string, done int) error {
	there, err := Read(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("cannot resume: %s has no %s, so nothing says which experiment it holds: use --force to "+
			"start over, or another --out", dir, File)
	}

	if err != nil {
		return fmt.Errorf("cannot resume: %w; use another --out", err)
	}

	if there.Seed != id.Seed {
		return fmt.Errorf("cannot resume: %s holds seed %d, this is seed %d; use another --out", dir, there.Seed,
			id.Seed)
	}

	if err := id.continueRounds(dir, there, done); err != nil {
		return fmt.Errorf("cannot resume: %w", err)
	}

	differ := slices.DeleteFunc(there.Differences(id), func(d Difference) bool { return d.Key == roundsKey })
	if len(differ) > 0 {
		return fmt.Errorf("cannot resume: %s holds another experiment: %s; use another --out", dir,
			listed(there, id, differ))
	}

	return nil
}

const roundsKey, everyKey = "train.rounds", "eval.every"

// continueRounds refuses a number of rounds that would leave other records than a run that never stopped: the last
// round is always tested, so a run ends, and goes on, at a tested round.
func (id Identity) continueRounds(dir string, there Identity, done int) error {
	now, was, every := id.number(roundsKey), there.number(roundsKey), max(1, id.number(everyKey))
	switch {
	case now < done:
		return fmt.Errorf("%s has %d finished rounds, but %s is %d: set it to %d or more, or use another --out", dir,
			done, roundsKey, now, done)
	case now != was && (done == was || done == now) && done%every != 0:
		return fmt.Errorf("%s has %d finished rounds, of which a run of %d rounds with %s: %d tests others: leave %s "+
			"at %d, or use another --out", dir, done, now, everyKey, every, roundsKey, was)
	}

	return nil
}

// number is a value that is a whole number; 0 where it is none.
func (id Identity) number(key string) int {
	n, _ := strconv.Atoi(id.Values[key])
	return n
}

// CheckSeeds refuses a run among seeds of another experiment, and names the keys: seeds stand beside each other in one
// table.
func (id Identity) CheckSeeds(dir string) error {
	there, err := Read(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}

	if err != nil {
		return err
	}

	if differ := there.Differences(id); len(differ) > 0 {
		return fmt.Errorf("%s holds another experiment: %s; use another --out", dir, listed(there, id, differ))
	}

	return nil
}

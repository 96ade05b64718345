package experiment

import (
	"fmt"
	"slices"
	"strings"
)

// former lists keys of the configuration that other releases have. Those that begin with a dot stand in several
// sections.
var former = map[string]struct {
	now   string // its present name; empty for a key that was removed
	value any    // of a removed key, for what every run does now
	why   string // and what to use in its place
}{
	"exam": {now: "eval.sets and eval.sets_root"}, "exam.sets": {now: "eval.sets"},
	"exam.root": {now: "eval.sets_root"}, "joint": {now: "embed_dim"}, ".drawn": {now: ".generator"},
	"secure_aggregation.beside":  {now: "secure_aggregation.extra_clip"},
	"secure_aggregation.surveys": {now: "secure_aggregation.statistics"},

	"eval.tensorboard": {value: false, why: "use the flag --log tensorboard"},
	"runtime.encode": {value: false, why: "it only sent a simulation's messages through their encoded form; " +
		"promptfed serve and join send real ones"},
	"runtime.inter_threads": {value: 1, why: "it made no run faster, because the graphs are chains of operators; use " +
		"runtime.threads or runtime.workers"},
	"synthetic.shots": {value: 0, why: "it had no effect; give the section a folder with fewer images"},
	"synthetic.views": {value: 1, why: "it had no effect; the server trains on plain images"},
	"vocabulary": {value: "", why: "the byte-pair merges are those of the bundled backbones; set merges for their " +
		"number"},
}

// FormerKey returns an error that says what became of a key of another release; nil for a key that no release had.
func FormerKey(key string) error {
	key = strings.ToLower(key)
	f, known := former[key]
	if last := strings.LastIndexByte(key, '.'); !known && last > 0 {
		f = former[key[last:]]
		f.now = key[:last] + f.now
		known = f.now != key[:last]
	}
	switch {
	case !known:
		return nil
	case f.now != "":
		return fmt.Errorf("the key %s is now called %s", key, f.now)
	}
	return fmt.Errorf("the key %s was removed: %s", key, f.why)
}

// RemovedKeys lists the keys of other releases that were removed, sorted.
func RemovedKeys() []string {
	var out []string
	for key, f := range former {
		if f.now == "" {
			out = append(out, key)
		}
	}
	slices.Sort(out)
	return out
}

// IsPresentValue reports whether a removed key has the value for what every run does now. The configuration in the run
// folder of another release lists all keys.
func IsPresentValue(key string, value any) bool {
	f, known := former[key]
	return known && f.now == "" && fmt.Sprint(value) == fmt.Sprint(f.value)
}

// rename gives keys their present names, and drops removed keys with their present value.
func (id *Identity) rename() {
	for key, value := range id.Values {
		f, known := former[key]
		switch {
		case known && f.now != "":
			delete(id.Values, key)
			id.Values[f.now] = value
		case known && IsPresentValue(key, value):
			delete(id.Values, key)
		}
	}
}

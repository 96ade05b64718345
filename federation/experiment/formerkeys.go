package experiment

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"promptfed/federation/configtags"
)

// renamedKeys are keys of the configuration that other releases have, with their present names. Those that begin with a
// dot stand in several sections.
var renamedKeys = map[string]string{"exam": "eval.sets and eval.sets_root", "exam.sets": "eval.sets",
	"exam.root": "eval.sets_root", "joint": "embed_dim", ".drawn": ".generator",
	"secure_aggregation.beside":  "secure_aggregation.extra_clip",
	"secure_aggregation.surveys": "secure_aggregation.statistics"}

// removedKeys are keys that this release does not have.
var removedKeys = map[string]configtags.Removed{
	"eval.tensorboard": {Was: "false", Instead: "use the flag --track tensorboard"},
	"runtime.encode": {Was: "false", Instead: "it only sent a simulation's messages through their encoded form; " +
		"promptfed serve and join send real ones"},
	"runtime.inter_threads": {Was: "1", Instead: "it made no run faster, because the graphs are chains of operators; " +
		"use runtime.threads or runtime.workers"},
	"synthetic.shots": {Was: "0", Instead: "it had no effect; give the section a folder with fewer images"},
	"synthetic.views": {Was: "1", Instead: "it had no effect; the server trains on plain images"},
	"vocabulary": {Instead: "the byte-pair merges are those of the bundled backbones; set merges for their " +
		"number"},
}

// presentName returns the present name of a key that was renamed; empty for any other key.
func presentName(key string) string {
	if now := renamedKeys[key]; now != "" {
		return now
	}
	if last := strings.LastIndexByte(key, '.'); last > 0 && renamedKeys[key[last:]] != "" {
		return key[:last] + renamedKeys[key[last:]]
	}
	return ""
}

// CheckFormer returns an error that says what became of a key of another release; nil for a key that no release had,
// and for a removed key whose value is what every run does now.
func CheckFormer(key string, value any) error {
	key = strings.ToLower(key)
	if now := presentName(key); now != "" {
		return fmt.Errorf("the key %s is now called %s", key, now)
	}
	if r, removed := removedKeys[key]; removed {
		return r.Check("the key "+key, value)
	}
	return nil
}

// RemovedKeys lists the keys of other releases that were removed, sorted.
func RemovedKeys() []string { return slices.Sorted(maps.Keys(removedKeys)) }

// rename gives keys their present names.
func (id *Identity) rename() {
	for key, value := range id.Values {
		if now := presentName(key); now != "" {
			delete(id.Values, key)
			id.Values[now] = value
		}
	}
}

package experiment

import "strings"

// renamed are keys of the configuration that had other names. Those that begin with a dot stand in several sections.
var renamed = map[string]string{"exam": "eval.sets and eval.sets_root", "exam.sets": "eval.sets",
	"exam.root": "eval.sets_root", "joint": "embed_dim",
	"secure_aggregation.beside":  "secure_aggregation.extra_clip",
	"secure_aggregation.surveys": "secure_aggregation.statistics",
	".drawn":                     ".generator"}

// NewName is the present name of a key that was renamed; empty for one that was not.
func NewName(key string) string {
	key = strings.ToLower(key)
	if now := renamed[key]; now != "" {
		return now
	}
	last := strings.LastIndexByte(key, '.')
	if last > 0 && renamed[key[last:]] != "" {
		return key[:last] + renamed[key[last:]]
	}
	return ""
}

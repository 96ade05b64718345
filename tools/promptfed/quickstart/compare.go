package quickstart

import (
	"encoding/json"
	"maps"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	"promptfed/configs"
	"promptfed/federation/engine/record"
	"promptfed/federation/methods"
)

// contender is a method of a comparison.
type contender struct {
	label, method string
	set           string // keys of the method as YAML in one line
}

// byHand is the zero-shot classifier with hand-written prompts. Every comparison includes it.
var byHand = contender{"zero-shot", "zeroshot", "{method: zeroshot}"}

// usual lists the methods of a first comparison.
var usual = []contender{byHand,
	{"CoOp", "coop", "{method: coop, options: {tokens: 4}}"},
	{"PromptFL", "promptfl", "{method: promptfl, options: {tokens: 4}}"},
	{"FedPHA", "fedpha", "{method: fedpha, options: {global_tokens: 4, local_tokens: [4]}}"},
	{"FedAPPR", "fedappr", "{method: fedappr, options: {tokens: 4, warmup: 5}}"}}

// short are the options of a requested method that shorten its prompts, as those of usual are.
var short = map[string]any{"tokens": record.FewTokens, "global_tokens": record.FewTokens,
	"local_tokens": []int{record.FewTokens}}

// common lists the keys that apply to hand-written prompts too: images, clients, evaluation and runtime.
var common = []string{"name", "seed", "backbones", "assign", "data", "partition", "eval", "reproduce", "runtime",
	"train.rounds"}

// notByHand is the key below these that does not apply to hand-written prompts.
const notByHand = "eval.embeddings"

// against compares the requested method with hand-written prompts. It returns the changes of common keys in all; other
// changes, such as options, become keys of the method.
func against(asked configs.Loaded, changes []string) (out []contender, all []string, err error) {
	if asked.Method == byHand.method {
		return []contender{byHand}, slices.DeleteFunc(slices.Clone(changes), func(c string) bool {
			return strings.HasPrefix(c, "method=")
		}), nil
	}

	own := map[string]any{"method": asked.Method}
	for option, value := range short {
		if methods.HasOption(asked.Method, nil, option) {
			own["options."+option] = value
		}
	}

	for _, c := range changes {
		key, text, _ := strings.Cut(c, "=")
		if key != notByHand && slices.ContainsFunc(common, func(k string) bool {
			return key == k || strings.HasPrefix(key, k+".")
		}) {
			all = append(all, c)
			continue
		}
		var value any
		if err := yaml.Unmarshal([]byte(text), &value); err != nil {
			return nil, nil, err
		}
		maps.DeleteFunc(own, func(k string, _ any) bool { return strings.HasPrefix(k, key+".") })
		own[key] = value
	}

	text, err := json.Marshal(own) // as YAML in one line
	if err != nil {
		return nil, nil, err
	}

	label := asked.Method
	if d, err := methods.Find(asked.Method); err == nil {
		label = d.Title
	}

	label = strings.Join(append([]string{label}, asked.With...), " + ")
	return []contender{byHand, {label, asked.Method, string(text)}}, all, nil
}

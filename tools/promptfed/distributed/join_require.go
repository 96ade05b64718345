package distributed

import (
	"strings"

	"promptfed/federation/configtags"
	"promptfed/federation/experiment"
	"promptfed/federation/experiment/facts"
	"promptfed/federation/transport/exchange"
)

// requirements reads --require; keys that nothing has are errors.
func requirements(text string) ([]facts.Requirement, error) {
	list, err := facts.ParseRequirements(text)
	if err != nil {
		return nil, err
	}
	facts, keys := experiment.AllFacts(), configtags.Flatten(experiment.Defaults())
	for _, r := range list {
		_, fact := facts.Find(r.Key)
		if _, key := keys[r.Key]; !fact && !key && !strings.HasPrefix(r.Key, optionKeys) {
			return nil, experiment.AllFacts().Unknown(r.Key)
		}
	}
	return list, nil
}

// optionKeys is what the keys of options of methods begin with.
const optionKeys = "options."

// meets checks --require against a configuration, as it came from the server or as it is with this client's own keys.
func (f joinFlags) meets(conf experiment.Config, inv *exchange.Invitation, whose string) (facts.Facts, error) {
	conf.Partition.Clients = inv.Clients
	facts, err := conf.Facts(experiment.Link{TLS: f.link.TLS != "", Insecure: inv.InsecureDP})
	if err != nil {
		return nil, err
	}
	keys := configtags.Flatten(conf)
	options(keys, optionKeys, conf.Options)
	return facts, facts.Meets(f.required, keys, whose)
}

// options puts the options of methods among other keys.
func options(keys map[string]any, at string, m map[string]any) {
	for name, v := range m {
		if inner, ok := v.(map[string]any); ok {
			options(keys, at+name+".", inner)
		} else {
			keys[at+name] = v
		}
	}
}

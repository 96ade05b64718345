package distributed

import (
	"strings"

	"promptfed/federation/configtags"
	"promptfed/federation/experiment"
	"promptfed/federation/experiment/facts"
	netclient "promptfed/federation/net/client"
)

// requirements parses --require. An unknown key is an error.
func requirements(text string) ([]facts.Requirement, error) {
	list, err := facts.ParseRequirements(text)
	if err != nil {
		return nil, err
	}

	facts, keys := experiment.AllFacts(), configtags.Flatten(experiment.Defaults())
	for _, r := range list {
		_, fact := facts.Find(r.Key)
		if _, key := keys[r.Key]; !fact && !key && !strings.HasPrefix(r.Key, optionKeys) {
			return nil, facts.Unknown(r.Key)
		}
	}

	return list, nil
}

// optionKeys is the prefix of the keys of method options.
const optionKeys = "options."

// checkRequirements checks --require against a configuration and returns the facts about the configuration. whose names
// the configuration in errors: that of the server, or the one with the keys of this client.
func (f joinFlags) checkRequirements(conf experiment.Config, inv *netclient.Invitation,
	whose string) (facts.Facts, error) {
	conf.Partition.Clients = inv.Clients
	facts, err := conf.Facts(experiment.Link{TLS: f.link.TLS != "", Insecure: inv.InsecureDP})
	if err != nil {
		return nil, err
	}
	return facts, facts.Meets(f.required, conf.Values(), whose)
}

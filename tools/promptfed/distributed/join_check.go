package distributed

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"

	"promptfed/federation/configtags"
	"promptfed/federation/experiment"
	"promptfed/federation/experiment/facts"
	"promptfed/federation/experiment/identity"
	netclient "promptfed/federation/net/client"
	"promptfed/tools/promptfed/progress"
)

// fails returns an error, with which join ends. With --check it keeps the error, and what follows is compared too.
func (f joinFlags) fails(err error) error {
	if err == nil || f.differences == nil {
		return err
	}
	*f.differences = append(*f.differences, err)
	return nil
}

// compare is join until its first sending. It prints what this site and the server have in common, and all differences.
func (f joinFlags) compare(ctx context.Context, inv *netclient.Invitation, log *slog.Logger) error {
	conf, err := f.configuration(inv)
	if err != nil {
		return err
	}

	d := progress.New(conf)
	defer d.Close()
	task, err := f.open(ctx, conf, inv, inv.Classes, d, log)
	if f.fails(err); err != nil { // it may be about the classes alone
		first := err.Error()
		if task, err = f.open(ctx, conf, inv, nil, d, log); err != nil && err.Error() != first {
			f.fails(err)
		}
	}

	if ctx.Err() != nil {
		return ctx.Err()
	}

	theirs, _ := f.invited(inv) // configuration has read it without an error
	if task == nil || !f.compareSpecs(task, theirs, inv) {
		f.compareKeys(theirs, conf)
	}

	if found := errors.Join(*f.differences...); found != nil {
		fmt.Println("differs: " + strings.ReplaceAll(found.Error(), "\n", "\ndiffers: "))
		return errors.New("the server would refuse this client: see the lines above that begin with differs")
	}

	fmt.Println("join would be accepted, as far as a client knows before it joins")
	return nil
}

// compareSpecs prints what agrees of what both sides must share, and what the server or most clients decide later. It
// reports whether all agrees.
func (f joinFlags) compareSpecs(task *experiment.Task, theirs experiment.Config, inv *netclient.Invitation) bool {
	theirs.Partition.Clients = inv.Clients
	p, err := experiment.OpenServer(theirs, f.insecureDP && inv.InsecureDP)
	if err != nil {
		f.fails(fmt.Errorf("the server's configuration: %w", err))
		return false
	}

	server, site := p.Experiment.RunSpec(), task.Experiment.RunSpec()
	if server.Classes = inv.Classes; len(inv.Classes) == 0 {
		site.Classes = nil
	}

	same, lines := server.FixedBy(site).Compare("the server", site, "this site")
	if _, err := f.checkRequirements(theirs, inv, ""); err == nil && len(f.required) > 0 {
		same = append(same, "--require")
	}

	for _, what := range same {
		fmt.Println("agrees: " + what)
	}

	f.fails(errors.Join(lines...))
	if len(inv.Classes) == 0 {
		fmt.Printf("open: classes: the server has none yet, and most clients decide; this site has %q\n",
			task.Experiment.Classes)
	}

	b := task.OwnBackbone()
	fmt.Printf("open: backbone: this site has %s (%s, features of %d, tokens of %d, SHA-256 %.12s), the server names "+
		"%s; files of one name and shapes of shared parameters must be equal, or use --set backbones=[NAME]\n", b.Name,
		b.Architecture, b.Text.EmbedDim, b.Text.Width, b.Digest(), strings.Join(theirs.Backbones, ", "))
	return len(lines) == 0
}

// ofSite are the keys and sections that a client decides.
var ofSite = []string{"name", "backbones", "assign", "partition", "data", "eval.sets", "eval.sets_root", "runtime"}

// compareKeys adds a line for each key that the server decides and that has another value here.
func (f joinFlags) compareKeys(theirs, site experiment.Config) {
	want, has := theirs.Values(), site.Values()
	for _, key := range slices.Sorted(maps.Keys(want)) {
		a, _ := json.Marshal(want[key])
		b, _ := json.Marshal(has[key])
		if !identity.Within(key, ofSite) && !bytes.Equal(a, b) {
			f.fails(fmt.Errorf("%s: the server has %s, this site %s; remove the key here, or use --set '%s=%s'", key, a,
				b, key, a))
		}
	}
}

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

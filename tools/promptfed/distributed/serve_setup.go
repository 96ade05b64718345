package distributed

import (
	"encoding/json"
	"fmt"
	"log/slog"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"promptfed/configs"
	"promptfed/federation/engine/spec"
	"promptfed/federation/experiment"
	"promptfed/federation/methods"
	"promptfed/federation/net/certs"
	"promptfed/federation/net/server"
	"promptfed/federation/net/wire"
	"promptfed/runtime/atomicfile"
	"promptfed/tools/promptfed/cli"
	"promptfed/tools/promptfed/runfolder"
)

// settings returns the settings of the server.
func (f serveFlags) settings(dir string, protocol *experiment.Protocol, log *slog.Logger) (server.Settings, error) {
	set := server.Settings{Name: protocol.Config.Name, Listen: f.listen, Resume: f.resume, Clients: f.clients,
		Deadline: f.deadline, Quorum: f.quorum, KeepQuorum: f.keepQuorum, Method: protocol.Experiment.Method,
		RunSpec: protocol.Experiment.RunSpec(), Limit: f.limit,
		Largest: f.largest, MaxNorm: f.norm, MaxExamples: f.examples, Masked: protocol.Aggregation != nil,
		Privacy: server.Privacy{Clients: methods.HidesClients(protocol.Experiment.Method)}, Log: log}

	if !f.insecureDP {
		set.Privacy.Sample, set.Privacy.Size = protocol.SampleCounts()
	}

	var err error
	if set.Token, err = f.link.Token(); err != nil {
		return set, err
	}

	if set.Rate, err = protocol.Config.Train.Schedule.New(protocol.Config.Train.LR); err != nil {
		return set, err
	}

	if set.Masked {
		log.Warn("with secure aggregation, norms, examples and extras of single uploads cannot be checked; the " +
			"server drops sums that valid uploads cannot have")
		set.Least = protocol.Aggregation.Guarantees().Quorum()
		if q := set.Least; set.Quorum < q {
			set.Quorum = q
			log.Warn("the quorum is that of secure aggregation's threshold", "quorum", q, "given", f.quorum)
		}
	}

	if set.Config, err = configs.YAML(protocol.Config.Invitation()); err != nil {
		return set, err
	}

	if f.classes != "" {
		if set.RunSpec.Classes, err = readClasses(f.classes); err != nil {
			return set, err
		}
	}

	own, others, err := protocol.Config.OwnBackbones()
	if err != nil {
		return set, err
	}

	set.Backbones = map[string]spec.OwnBackbone{}
	for _, o := range own {
		set.Backbones[o.Task.Backbone] = o
		log.Info("clients must have the files of this server's bundle", "backbone", o.Task.Backbone, "folder", o.Dir)
	}

	if len(others) > 0 {
		log.Info("this server has no files of these backbones; the majority of the clients that join before the start "+
			"decides which are the right ones", "backbones", others)
	}

	if set.Identity, err = certificate(f.link, certs.ServerName); err != nil {
		return set, err
	}

	facts, err := protocol.Config.Invitation().Facts(experiment.Link{TLS: f.link.TLS != "", Insecure: f.insecureDP})
	if err != nil {
		return set, err
	}

	if set.Facts, err = json.Marshal(facts); err != nil {
		return set, err
	}

	set.InsecureDP = f.insecureDP && protocol.Private()
	set.Dir = filepath.Join(dir, runfolder.ServerFolder)
	set.ID, set.Resume, err = runID(dir, f.resume, set.InsecureDP)
	return set, err
}

// endures says how many silent and how many lying clients a round endures, of as many as it has on average: its line of
// the threat model in docs/distributed.md.
func endures(set server.Settings, protocol *experiment.Protocol) (silent, lying string) {
	n := int(protocol.Sampling().Size)
	first, later := set.Survives(n)
	if dp, on := methods.DPLayer(set.Method); on && dp.Where == "client" { // a round of fewer changes nothing
		later = min(later, n-int(math.Ceil(dp.Least*float64(n))))
	}

	silent = fmt.Sprintf("of the %d clients of a round, %d may be silent at its deadline, and %d after %d missed "+
		"deadlines", n, min(first, later), later, server.Deadlines)
	if set.Deadline == 0 {
		silent = fmt.Sprintf("none of the %d clients of a round may be silent: without --deadline it waits for all", n)
	}

	lying = "the mean withstands no lying client; the server bounds each upload " +
		"(docs/distributed.md#what-one-client-may-do-to-a-round)"
	r, robust := methods.RobustLayer(set.Method)
	switch {
	case robust:
		lying = fmt.Sprintf("of the %d clients of a round, %d may lie: %s of robust", n, r.Tolerates(n), r.Kind)
	case set.Masked:
		lying = fmt.Sprintf("the sum withstands no lying client; one can move each number of the mean by up to %v "+
			"(secure_aggregation.clip)", protocol.Config.SecureAggregation.Clip)
	case set.Privacy.Clients:
		lying = "the mean withstands no lying client; dp clips the update of each"
	}

	return silent, lying
}

// readClasses reads a file with one class name per line. A repeated name or a file without names is an error: no
// example could have the second of two classes with the same name.
func readClasses(path string) (classes []string, err error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}

	n := 0
	for line := range strings.Lines(string(text)) {
		n++
		if line = strings.TrimSpace(line); line == "" {
			continue
		}
		if slices.Contains(classes, line) {
			return nil, cli.Usagef("--classes: %s: line %d: class %q is listed twice", path, n, line)
		}
		classes = append(classes, line)
	}

	if len(classes) == 0 {
		return nil, cli.Usagef("--classes: %s has no class names; give one per line", path)
	}

	return classes, nil
}

// bound parses a flag that limits uploads. It returns a number, 0 for auto or -1 for off.
func bound(flag, text string) (float64, error) {
	switch text {
	case "auto":
		return 0, nil
	case "off":
		return -1, nil
	}

	v, err := strconv.ParseFloat(text, 64)
	switch {
	case err != nil || !(v >= 0 && v <= 1<<53):
		return 0, fmt.Errorf("--%s %q: expected auto, off or a number above 0, at most 2^53", flag, text)
	case v == 0:
		return -1, nil
	}

	return v, nil
}

// noiseFile is the file with the secret of the noise, in runfolder.ServerFolder or in the folder of a client.
const noiseFile = "noise.json"

// seededNoise is the warning about noise that protects nothing.
const seededNoise = "--insecure-dp: the noise of differential privacy comes from the run's seed, which everybody " +
	"knows; it protects nothing, and no epsilon is recorded"

// runID returns the identity of the run in a folder. A resumed run keeps its identity and the source of its noise.
func runID(dir string, resume, insecureDP bool) (id string, old bool, err error) {
	path := filepath.Join(dir, runfolder.ServerFile)
	var saved struct {
		Run        string `json:"run"`
		InsecureDP bool   `json:"insecure_dp,omitempty"`
	}
	if resume {
		there, err := atomicfile.ReadJSON(path, &saved)
		if err == nil && there && saved.InsecureDP != insecureDP {
			err = cli.Usagef("%s: the run began with insecure_dp %v; continue it the same way (flag "+
				"--insecure-dp), or use another --out", path, saved.InsecureDP)
		}
		if err != nil || there {
			return saved.Run, there, err
		}
	}

	saved.Run, saved.InsecureDP = wire.NewID(), insecureDP
	return saved.Run, false, atomicfile.Write(path, atomicfile.JSON(saved, ""))
}

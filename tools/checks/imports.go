package checks

import (
	"fmt"
	"slices"
	"strings"
)

// layers lists the layers from the lowest to the highest. A package may import packages of its own layer and of lower
// layers.
var layers = []string{"runtime", "models", "federation", "configs", "tools"}

// reserved lists packages that only some folders may import. Tests that start the program and checks of the repository
// are among them: no other code may depend on these.
var reserved = []struct {
	path    string
	folders []string
}{
	{"github.com/yalue/onnxruntime_go", []string{"runtime/ort"}},
	{"github.com/nats-io/nats-server", []string{"federation/net/natsserver"}},
	{"connectrpc.com/connect", []string{"federation/net", "tools/e2e"}},
	{"github.com/spf13/viper", []string{"configs"}},
	{"github.com/spf13/cobra", []string{"tools"}},
	{"github.com/schollz/progressbar", []string{"tools"}},
	{"gonum.org/v1/plot", []string{"tools/lab"}},
	{"github.com/prometheus", []string{"tools"}},
	{Module + "/tools/e2e", []string{"tools/e2e"}},
	{Module + "/tools/checks", []string{"tools/checks"}},
}

// lab is the code that draws, compares, measures and converts, with its library for plots. Commands that train a
// federation get reports and trackers from the program (cli.Outputs) and do not depend on this code.
var lab = []string{Module + "/tools/lab", "gonum.org/v1/plot"}

// banned lists packages that a folder must not import.
var banned = []struct {
	folder  string
	through bool // also forbids indirect imports
	paths   []string
}{
	{"tools/promptfed/run", true, lab},
	{"tools/promptfed/distributed", true, lab},
	{"tools/promptfed/cli", true, lab},
	{"tools/promptfed/runfolder", true, lab},
	{"tools/promptfed/progress", true, lab},
	{"tools/promptfed/quickstart", true, lab},
	{"tools/promptfed/signals", true, lab},
	{"tools/promptfed/hostguard", true, lab},
	{"tools/promptfed/serving", true, lab},
	{"models", true, []string{Module + "/runtime/ort", "github.com/yalue/onnxruntime_go"}},
	{"federation/method", true, []string{Module + "/runtime/ort", Module + "/federation/engine"}},
	{"federation/methods", true, []string{Module + "/runtime/ort", Module + "/federation/engine"}},
	{"federation/method", false, []string{"os", "net", "time"}},
	{"federation/methods", false, []string{"os", "net", "time"}},
	{"federation/engine", true, []string{Module + "/federation/methods", "github.com/nats-io"}},
	{"federation/engine/metrics", true, engine("message", "record", "spec", "state", "client")},
	{"federation/engine/message", true, engine("record", "spec", "state", "client")},
	{"federation/engine/record", true, engine("spec", "state", "client")},
	{"federation/engine/spec", true, engine("state", "client")},
	{"federation/engine/state", true, engine("client")},
	{"federation/engine/client", true, engine("state")},
	{"federation/experiment", true, []string{"github.com/nats-io"}},
	{"configs", true, []string{"github.com/nats-io"}},
	{"federation/net", true, []string{Module + "/federation/methods", Module + "/federation/experiment"}},
	{"federation/experiment/facts", true, []string{Module + "/federation/engine"}},
	{"federation/net/certs", true, []string{Module + "/federation/engine", "github.com/nats-io"}},
	{"federation/net/listen", true, []string{Module + "/federation/engine", "github.com/nats-io"}},
	{"federation/net/remote", true, []string{"github.com/nats-io"}},
	{"federation/net/workers", true, []string{"github.com/nats-io/nats-server"}},
	{"federation/net/natsserver", true, []string{Module + "/federation/engine"}},
}

// engine returns the paths of packages of the engine.
func engine(names ...string) []string {
	out := make([]string, len(names))
	for i, n := range names {
		out[i] = Module + "/federation/engine/" + n
	}
	return out
}

// Imports returns a line for each import that a rule forbids.
func Imports(list []Package) []string {
	var bad []string
	for _, p := range list {
		bad = append(bad, upward(p)...)
		bad = append(bad, owned(p)...)
		bad = append(bad, unreachable(p)...)
		bad = append(bad, undefined(p)...)
		bad = append(bad, groups(p)...)
	}
	return bad
}

// groups finds groups of methods, and packages that they share (parts), that import the table or another group.
func groups(p Package) []string {
	const methods = "federation/methods"
	own := p.inModule()
	if own == methods || !within(own, methods) {
		return nil
	}
	var bad []string
	for _, path := range p.Imports {
		if in := inModule(path); within(in, methods) && !within(in, methods+"/parts") && !within(in, own) {
			bad = append(bad, fmt.Sprintf("%s imports %s: of %s it may import %[3]s/parts only", p.ImportPath, path,
				methods))
		}
	}
	return bad
}

// upward finds imports of a higher layer, including those of tests, and packages outside the layers.
func upward(p Package) []string {
	mine := layer(p.ImportPath)
	if mine < 0 {
		return []string{fmt.Sprintf("%s is in no layer: put it under %s", p.ImportPath, strings.Join(layers, ", "))}
	}
	var bad []string
	for _, path := range p.direct() {
		if up := layer(path); up > mine {
			bad = append(bad, fmt.Sprintf("%s imports %s: %s is above %s", p.ImportPath, path, layers[up],
				layers[mine]))
		}
	}
	if p.ImportPath == Module+"/runtime" && len(p.GoFiles) > 0 {
		bad = append(bad, fmt.Sprintf("%s has Go files (%s): readers would take it for the standard library's "+
			"runtime", p.ImportPath, strings.Join(p.GoFiles, ", ")))
	}
	return bad
}

func layer(path string) int {
	return slices.IndexFunc(layers, func(f string) bool { return within(inModule(path), f) })
}

// owned finds imports of reserved packages by other folders.
func owned(p Package) []string {
	var bad []string
	for _, r := range reserved {
		for _, path := range p.direct() {
			if within(path, r.path) && !slices.ContainsFunc(r.folders, func(f string) bool {
				return within(p.inModule(), f)
			}) {
				bad = append(bad, fmt.Sprintf("%s imports %s: only %s may", p.ImportPath, path,
					strings.Join(r.folders, ", ")))
			}
		}
	}
	return bad
}

// unreachable finds imports of banned packages.
func unreachable(p Package) []string {
	var bad []string
	for _, b := range banned {
		// helpers of tests may import more
		if !within(p.inModule(), b.folder) || strings.HasSuffix(p.ImportPath, "test") {
			continue
		}
		paths, verb := p.Imports, "imports"
		if b.through {
			paths, verb = slices.Concat(p.Imports, p.Deps), "needs"
		}
		slices.Sort(paths)
		for _, path := range slices.Compact(slices.Clone(paths)) {
			if slices.ContainsFunc(b.paths, func(x string) bool { return within(path, x) }) {
				bad = append(bad, fmt.Sprintf("%s %s %s: nothing under %s may", p.ImportPath, verb, path, b.folder))
			}
		}
	}
	return bad
}

// undefined finds packages that build graphs without the definitions of the operators.
func undefined(p Package) []string {
	const graph, ops = Module + "/runtime/graph", Module + "/runtime/ops"
	if !slices.Contains(p.Imports, graph) || slices.Contains(p.Deps, ops) || p.ImportPath == ops {
		return nil
	}
	return []string{fmt.Sprintf("%s imports %s and not %s, which defines the operators: import it too",
		p.ImportPath, graph, ops)}
}

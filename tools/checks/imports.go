package checks

import (
	"fmt"
	"slices"
	"strings"

	"promptfed/runtime/convert"
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
	{Module + "/tools/checks", []string{"tools/checks", "tools/gendocs"}},
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
	{"federation/experiment/identity", true, []string{Module + "/federation"}},
	{"federation/net/certs", true, []string{Module + "/federation/engine", "github.com/nats-io"}},
	{"federation/net/listen", true, []string{Module + "/federation/engine", "github.com/nats-io"}},
	{"federation/net/wire", true, []string{Module + "/federation/net/server", Module + "/federation/net/client",
		"github.com/nats-io"}},
	{"federation/net/server", true, []string{Module + "/federation/net/client", "github.com/nats-io"}},
	{"federation/net/client", true, []string{Module + "/federation/net/server", "github.com/nats-io"}},
	{"federation/net/workers", true, []string{"github.com/nats-io/nats-server"}},
	{"federation/net/natsserver", true, []string{Module + "/federation/engine"}},
}

// engine returns the paths of packages of the engine.
func engine(names ...string) []string {
	return convert.Slice(names, func(n string) string { return Module + "/federation/engine/" + n })
}

// say reports a violation.
type say func(format string, a ...any)

// Imports returns a line for each import that a rule forbids.
func Imports(list []Package) (bad []string) {
	for _, p := range list {
		for _, rule := range []func(Package, say){upward, owned, unreachable, undefined, groups} {
			rule(p, func(format string, a ...any) { bad = append(bad, fmt.Sprintf(format, a...)) })
		}
	}
	return bad
}

// groups finds groups of methods, and packages that they share (parts), that import the table or another group.
func groups(p Package, say say) {
	const methods = "federation/methods"
	own := p.inModule()
	if own == methods || !within(own, methods) {
		return
	}

	for _, path := range p.Imports {
		if in := inModule(path); within(in, methods) && !within(in, methods+"/parts") && !within(in, own) {
			say("%s imports %s: of %s it may import %[3]s/parts only", p.ImportPath, path, methods)
		}
	}
}

// upward finds imports of a higher layer, including those of tests, and packages outside the layers.
func upward(importer Package, say say) {
	mine := layer(importer.ImportPath)
	if mine < 0 {
		say("%s is in no layer: put it under %s", importer.ImportPath, strings.Join(layers, ", "))
		return
	}

	for _, path := range importer.direct() {
		if up := layer(path); up > mine {
			say("%s imports %s: %s is above %s", importer.ImportPath, path, layers[up], layers[mine])
		}
	}

	if importer.ImportPath == Module+"/runtime" && len(importer.GoFiles) > 0 {
		say("%s has Go files (%s): readers would take it for the standard library's runtime", importer.ImportPath,
			strings.Join(importer.GoFiles, ", "))
	}
}

func layer(path string) int {
	return slices.IndexFunc(layers, func(f string) bool { return within(inModule(path), f) })
}

// owned finds imports of reserved packages by other folders.
func owned(p Package, say say) {
	for _, r := range reserved {
		mine := slices.ContainsFunc(r.folders, func(f string) bool { return within(p.inModule(), f) })
		for _, path := range p.direct() {
			if within(path, r.path) && !mine {
				say("%s imports %s: only %s may", p.ImportPath, path, strings.Join(r.folders, ", "))
			}
		}
	}
}

// unreachable finds imports of banned packages.
func unreachable(importer Package, say say) {
	for _, rule := range banned {
		// helpers of tests may import more
		if !within(importer.inModule(), rule.folder) || strings.HasSuffix(importer.ImportPath, "test") {
			continue
		}
		paths, verb := slices.Clone(importer.Imports), "imports"
		if rule.through {
			paths, verb = append(paths, importer.Deps...), "needs"
		}
		slices.Sort(paths)
		for _, path := range slices.Compact(paths) {
			if slices.ContainsFunc(rule.paths, func(x string) bool { return within(path, x) }) {
				say("%s %s %s: nothing under %s may", importer.ImportPath, verb, path, rule.folder)
			}
		}
	}
}

// undefined finds packages that build graphs without the definitions of the operators.
func undefined(p Package, say say) {
	const graph, ops = Module + "/runtime/graph", Module + "/runtime/ops"
	if slices.Contains(p.Imports, graph) && !slices.Contains(p.Deps, ops) && p.ImportPath != ops {
		say("%s imports %s and not %s, which defines the operators: import it too", p.ImportPath, graph, ops)
	}
}

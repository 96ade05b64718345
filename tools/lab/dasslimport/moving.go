package dasslimport

import (
	"cmp"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	"promptfed/configs"
	"promptfed/runtime/convert"
	"promptfed/runtime/oneline"
)

// Unconverted is a setting without an exact equivalent.
type Unconverted struct {
	What string `json:"what"`
	Why  string `json:"why"`
	key  string // related promptfed key; empty for none
}

func (l Unconverted) String() string { return l.What + ": " + l.Why }

// Result is a configuration as text. A comment at each key names the source of its value.
type Result struct {
	Text        []byte
	Unconverted []Unconverted
}

// line is a promptfed key with its value.
type line struct {
	key, from string
	is        any
}

type importer struct {
	keys, flags map[string]value
	used        map[string]bool
	trainer
	whole  bool // all images are distributed, regardless of the shots
	lines  []line
	left   []Unconverted
	chosen map[string]bool // keys from sets
}

// Import converts the files of one experiment to a configuration. A set is key=value with a promptfed key. It fixes a
// key that the files leave open and removes the notes about this key.
func Import(files []File, sets []string) (Result, error) {
	keys, flags, err := read(files)
	if err != nil {
		return Result{}, err
	}

	im := importer{keys: keys, flags: flags, used: map[string]bool{}, chosen: map[string]bool{}}
	var own []line
	for _, s := range sets {
		key, text, ok := strings.Cut(s, "=")
		var v any
		if !ok || key == "" || yaml.Unmarshal([]byte(text), &v) != nil || v == nil {
			return Result{}, fmt.Errorf("--set %q: expected key=value", s)
		}
		im.chosen[key] = true
		own = append(own, line{key, "--set", v})
	}

	if err := im.choose(); err != nil {
		return Result{}, err
	}

	im.single()
	im.schedule()
	im.partition()
	im.rest(files)
	for _, l := range own {
		im.remove(l.key)
		im.lines = append(im.lines, l)
	}

	return im.result(files)
}

// get returns the value of a setting. The value of a weak flag counts only if no file has the setting.
func (im *importer) get(theirs string) (value, bool) {
	setting, ok := find(func(setting Setting) bool {
		return setting.Dassl == theirs && (setting.Trainer == "" || setting.Trainer == im.method)
	})
	if !ok {
		return value{}, false
	}

	im.used["--"+setting.Flag] = true
	if v, ok := im.keys[theirs]; ok {
		im.used[theirs] = true
		return v, true
	}

	v, ok := im.flags[setting.Flag]
	return v, ok && setting.Flag != ""
}

func (im *importer) write(key string, is any, from string) {
	if im.written(key) == nil {
		im.lines = append(im.lines, line{key, from, is})
	}
}

// written returns the line of a key, or nil without one.
func (im *importer) written(key string) *line {
	if at := slices.IndexFunc(im.lines, func(l line) bool { return l.key == key }); at >= 0 {
		return &im.lines[at]
	}
	return nil
}

func (im *importer) remove(key string) {
	im.lines = slices.DeleteFunc(im.lines, func(l line) bool { return l.key == key })
}

// leave notes a value or another thing without an equivalent, unless a set chose its key.
func (im *importer) leave(key string, what any, why string) {
	if !im.chosen[key] {
		im.left = append(im.left, Unconverted{fmt.Sprint(what), why, key})
	}
}

func (im *importer) choose() error {
	value, ok := im.get("TRAINER.NAME")
	name, _ := value.is.(string)
	trainer, known := trainers[name]
	switch {
	case !ok:
		return fmt.Errorf("no file names the trainer; also give the file with TRAINER.NAME, or the script with " +
			"--trainer")
	case !known:
		return fmt.Errorf("%s: unknown trainer %v; known: %s", value.from, value.is,
			strings.Join(slices.Sorted(maps.Keys(trainers)), ", "))
	}

	im.trainer = trainer
	im.write("method", trainer.method, value.from)
	return nil
}

// single converts settings that depend on no other setting.
func (im *importer) single() {
	for _, setting := range Settings() {
		if setting.Trainer != "" && setting.Trainer != im.method || setting.Dassl == "TRAINER.NAME" ||
			strings.HasPrefix(setting.Dassl, "TRAINER.GL_SVDMSE.") && im.lengths && im.keys[setting.Dassl].from != "" {
			continue
		}

		value, ok := im.get(setting.Dassl)
		if !ok || setting.to == nil {
			continue
		}

		is, err := setting.to(value.is)
		switch {
		case err != nil:
			im.leave(setting.Key, value, err.Error())
		case is == nil || setting.Dassl == "--mu" && im.written("with") == nil ||
			strings.Contains(setting.Key, "schedule") || setting.Key == "partition.beta" && im.central:
		case setting.Dassl == "OPTIM.MAX_EPOCH" && im.central:
			im.write("train.rounds", is, value.from)
		case setting.Dassl == "OPTIM.MAX_EPOCH":
			im.write("train.epochs", is, value.from)
		case setting.Dassl == "OPTIM.ROUND" && im.central:
			im.leave("train.rounds", value.from, "a trainer of CoOp's code has no rounds")
		case setting.Dassl == "--frac" && im.oneCode:
			if is != 1 && is != 1.0 {
				im.leave("participation", value, "FedPHA's code reads it but trains all clients")
			}
		default:
			im.write(setting.Key, is, value.from)
			if setting.Key == "options.global_tokens" && !im.lengths {
				im.write("options.local_tokens", []any{is}, value.from)
			}
		}
	}

	if v, ok := im.get("DATASET.USEALL"); ok && v.is == true {
		im.remove("data.shots")
		im.write("data.shots", 0, v.from)
	}
}

// schedule converts the learning rate schedule. A central trainer steps the schedule once per epoch, which is a round
// here. Federated trainers share one schedule among all trainings of all clients.
func (im *importer) schedule() {
	kind, ok := im.get("OPTIM.LR_SCHEDULER")
	gamma, hasGamma := im.get("OPTIM.GAMMA")
	step, hasStep := im.get("OPTIM.STEPSIZE")
	warm, _ := im.get("OPTIM.WARMUP_EPOCH")
	epochs, _ := im.get("OPTIM.MAX_EPOCH")
	const key = "train.schedule.kind"
	warmup, _ := warm.is.(int)
	if !im.central {
		g, isNumber := float(gamma.is)
		switch {
		case kind.is == "single_step" && isNumber && g == 1:
			im.write(key, "constant", kind.from+" with gamma 1")
		case ok:
			im.write(key, "constant", "instead of theirs")
			im.leave(key, kind, "their schedule counts the epochs of all clients together, promptfed's counts "+
				"rounds; a constant rate is written")
		}
		if warmup > 0 {
			im.leave("train.schedule.warmup", warm, "their warm-up covers only the first epochs of all clients "+
				"together, so those of the first client")
		}
		return
	}

	switch kind.is {
	case "cosine":
		im.write(key, "cosine", kind.from)
		im.write("train.schedule.t_max", epochs.is, epochs.from)
	case "single_step":
		size := step.is
		if list, isList := size.([]any); isList && len(list) == 1 {
			size = list[0]
		}
		if k, isInt := size.(int); !hasStep || isInt && k < 1 {
			size = epochs.is
		}
		im.write(key, "step", kind.from)
		im.write("train.schedule.step_size", size, cmp.Or(step.from, epochs.from))
		if hasGamma {
			im.write("train.schedule.gamma", gamma.is, gamma.from)
		}
	default:
		if ok {
			im.leave(key, kind, "supported: single_step, cosine")
		}
	}

	if warmup > 0 {
		im.write("train.schedule.warmup", warmup, warm.from)
		for _, k := range []struct{ theirs, ours, usual string }{
			{"OPTIM.WARMUP_CONS_LR", "train.schedule.warmup_lr", "1e-5"},
			{"OPTIM.WARMUP_TYPE", "train.schedule.warmup_kind", "linear"},
		} {
			if v, there := im.get(k.theirs); there && v.is != "linear" {
				im.write(k.ours, v.is, v.from)
			} else if !there {
				im.leave(k.ours, k.theirs, "not given; Dassl's default is "+k.usual)
			}
		}
	}
}

// partition converts the distribution of examples, which depends on the data set as in Dassl's code.
func (im *importer) partition() {
	const key = "partition.kind"
	if im.central {
		im.write("train.centralised", true, "one model, as CoOp's code trains")
		im.write("partition.clients", 1, "one model, as CoOp's code trains")
		im.write("train.optimizer_state", "shared", "in their code momentum continues from epoch to epoch")
		return
	}

	set := im.written("data.set")
	if set == nil {
		im.leave(key, "the partition", "it depends on the data set, which is unknown")
		return
	}

	data := fmt.Sprint(set.is)
	iid, _ := im.get("DATASET.IID")
	name, _ := im.get("DATASET.PARTITION")
	kind, from, dirichlet := "", "as their code does for "+data, false
	switch data {
	case "cifar10", "cifar100":
		kind = map[string]string{"noniid-labeldir": "dirichlet", "noniid-labeluni": "labeluni",
			"noniid-labeldir100": "pachinko", "homo": "iid"}[fmt.Sprint(name.is)]
		if from = name.from; kind == "" {
			im.leave(key, fmt.Sprintf("the partition %v", name.is), "supported for CIFAR: noniid-labeldir, "+
				"noniid-labeluni, noniid-labeldir100, homo")
			return
		}
		if dirichlet = kind == "dirichlet" || kind == "pachinko"; kind == "dirichlet" {
			im.write("partition.min_size", 10, from)
		} else if kind == "labeluni" && data == "cifar100" {
			im.write("partition.classes", 10, from)
		}
		im.leave("data.precision", "images of "+data, "their code uses CIFAR's mean and deviation and resizes "+
			"tensors; promptfed treats them as all images of the backbone")
		im.whole = true
	case "pacs", "office31", "officehome":
		kind, dirichlet, im.whole = "domain-dirichlet", true, true
		im.write("partition.min_size", 2, from)
	case "officecaltech10", "domainnet10", "domainnet":
		im.leave(key, "the partition of "+data, "it depends on flags of FedOTP's code; choose domain or "+
			"domain-dirichlet")
		im.remove("data.shots")
		im.whole = true
		return
	default:
		kind = "pathological"
		if iid.is == true || iid.is == "True" {
			kind, from = "iid-shots", iid.from
		}
	}

	if im.whole {
		im.remove("data.shots") // read for these sets too, but without effect
	}

	im.write(key, kind, from)
	im.write("partition.code", true, "the partition of their code, with the same random numbers")
	if !dirichlet {
		im.remove("partition.beta")
	}
}

// rest writes the implicit behaviour of the Dassl code, and lists missing and unknown settings.
func (im *importer) rest(files []File) {
	const always = "fixed in their code"
	im.write("train.drop_last", true, always)
	for _, l := range im.always {
		im.write(l.key, l.is, always)
	}

	if im.lengths {
		im.privateLengths()
	}

	switch rounds := im.written("train.rounds"); {
	case im.oneCode:
		im.write("train.optimizer_state", "fresh", "their code resets momentum after each client")
		if rounds != nil && rounds.is.(int) >= 5 {
			im.write("eval.last", 5, "the mean that their code prints")
		}
	case !im.central && !im.untrained:
		im.write("train.optimizer_state", "fresh", "as in FedPHA's code")
		im.leave("train.optimizer_state", "momentum between clients", "FedPHA's code resets it "+
			"(train.optimizer_state: fresh, which is written); FedOTP's and FedPGP's pass it on to the next client "+
			"(shared)")
	}

	for _, d := range defaults {
		if _, given := im.get(d.theirs); !given && (!im.untrained || d.ours == "") && im.applies(d.theirs) {
			im.leave(d.ours, d.theirs, "not given; their code's default: "+d.is)
		}
	}

	for _, name := range []string{"iid", "useall", "specify"} {
		if v, ok := im.flags[name]; ok && v.is == false {
			im.leave("", v.from+" = False", "their parser takes the text False as true; leave the flag out where "+
				"false is meant")
		}
	}

	needed := []string{"backbones", "data.set", "data.root", "train.lr", "train.batch", "train.optimizer",
		"train.rounds", "train.schedule.kind"}
	if !im.central {
		needed = append(needed, "partition.clients", "train.epochs", "data.shots")
	}

	if im.written("with") != nil {
		needed = append(needed, "options.mu")
	}

	for _, key := range needed {
		if im.untrained && strings.HasPrefix(key, "train.") || im.written(key) != nil || im.whole &&
			key == "data.shots" || slices.ContainsFunc(im.left, func(l Unconverted) bool { return l.key == key }) {
			continue
		}
		im.leave(key, key, "no file gives it; defaults differ between their launchers, promptfed's is used")
	}

	for _, name := range slices.Sorted(maps.Keys(im.flags)) {
		v := im.flags[name]
		if strings.HasSuffix(name, "config_file") {
			base := filepath.Base(fmt.Sprint(v.is))
			if !slices.ContainsFunc(files, func(f File) bool { return filepath.Base(f.Name) == base }) {
				im.leave("", v, "also give that file")
			}
		} else if !im.used["--"+name] && !slices.ContainsFunc(Settings(), func(s Setting) bool {
			return s.Flag == name && s.Trainer != "" && s.Trainer != im.method // of another method alone
		}) {
			im.leave("", v, "unknown setting, ignored")
		}
	}

	if !slices.ContainsFunc(files, func(f File) bool { return !isScript(f) }) && !im.central {
		im.leave("", "the YAML file of the data set", "their code reads one, which overrides most flags; also give "+
			"that file")
	}

	for _, name := range slices.Sorted(maps.Keys(im.keys)) {
		v := im.keys[name]
		if v.hidden != nil {
			s, _ := find(func(s Setting) bool { return s.Dassl == name })
			im.leave(s.Key, v, v.hidden.String()+" before; the later file counts, so give the files in the order "+
				"in which their code reads them: data set, trainer")
		}
		if !im.used[name] && (strings.Count(name, ".") != 2 || im.applies(name)) { // no section of another trainer
			im.leave("", v, "unknown setting, ignored")
		}
	}
}

// find returns the first setting of the table that ok accepts.
func find(ok func(Setting) bool) (Setting, bool) {
	all := Settings()
	if at := slices.IndexFunc(all, ok); at >= 0 {
		return all[at], true
	}
	return Setting{}, false
}

// applies reports whether a setting belongs to all methods or, by its section of TRAINER, to the method.
func (im *importer) applies(theirs string) bool {
	section, ok := strings.CutPrefix(theirs, "TRAINER.")
	if !ok {
		return true
	}

	section, _, _ = strings.Cut(section, ".")
	if other, ok := trainers[section]; ok && other.method == im.method && other.lengths != im.lengths {
		return false
	}

	return slices.ContainsFunc(Settings(), func(s Setting) bool {
		return s.Trainer == im.method && strings.HasPrefix(s.Dassl, "TRAINER."+section+".")
	})
}

// privateLengths converts the lengths of clients' prompts in FedPHA's heterogeneous form.
func (im *importer) privateLengths() {
	const key = "options.local_tokens"
	if set := im.written("data.set"); set != nil && (set.is == "cifar10" || set.is == "cifar100") {
		im.leave(key, "lengths of private prompts", "on CIFAR their code draws them, whatever the file says")
		return
	}

	value, ok := im.keys["DATASET.USER_PROMPT_LENGTHS"]
	if specify, _ := im.get("--specify"); specify.is == true || specify.is == "True" {
		value, ok = im.flags["prompts_lens"]
	}

	list, isList := value.is.([]any)
	for _, n := range list {
		_, isInt := n.(int)
		isList = isList && isInt
	}

	if !ok || !isList {
		im.leave(key, "lengths of private prompts", "no file gives a list of them; give DATASET.USER_PROMPT_LENGTHS")
		return
	}

	im.write(key, list, value.from)
}

// result orders the lines as in a configuration and checks that promptfed accepts them.
func (im *importer) result(files []File) (Result, error) {
	names := convert.Slice(files, func(f File) string { return filepath.Base(f.Name) })
	head := "Made by promptfed import of " + strings.Join(names, ", ") + ".\n"
	if len(im.left) > 0 {
		head += "Differences from the original:\n"
	}

	for _, l := range im.left {
		head += "- " + oneline.Text(l.String()) + "\n"
	}

	root := &yaml.Node{Kind: yaml.MappingNode, HeadComment: head}
	im.write("name", "imported", "")
	slices.SortStableFunc(im.lines, func(a, b line) int { return cmp.Compare(order(a.key), order(b.key)) })
	for _, line := range im.lines {
		at, path := root, strings.Split(line.key, ".")
		for _, p := range path[:len(path)-1] {
			at = below(at, p)
		}
		leaf := &yaml.Node{}
		if err := leaf.Encode(line.is); err != nil {
			return Result{}, err
		}
		if leaf.Kind == yaml.SequenceNode {
			leaf.Style = yaml.FlowStyle
		}
		leaf.LineComment = oneline.Text(line.from)
		at.Content = append(at.Content, &yaml.Node{Kind: yaml.ScalarNode, Value: path[len(path)-1]}, leaf)
	}

	out, err := yaml.Marshal(&yaml.Node{Kind: yaml.DocumentNode, Content: []*yaml.Node{root}})
	if err != nil {
		return Result{}, err
	}

	c, err := configs.OpenText("the imported configuration", out, nil)
	switch {
	case err != nil:
	case c.Data.Set == "": // an unknown data set, named in the header
		err = c.CheckWithoutData()
	default:
		err = c.Check()
	}

	if err != nil {
		return Result{}, fmt.Errorf("these files give a configuration that promptfed refuses: %w", err)
	}

	return Result{Text: out, Unconverted: im.left}, nil
}

// order returns the position of a key's section in a configuration.
func order(key string) int {
	first, _, _ := strings.Cut(key, ".")
	return slices.Index([]string{"name", "seed", "backbones", "method", "with", "options", "data", "partition", "train",
		"participation", "eval"}, first)
}

func below(n *yaml.Node, key string) *yaml.Node {
	for i := 0; i+1 < len(n.Content); i += 2 {
		if n.Content[i].Value == key && n.Content[i+1].Kind == yaml.MappingNode {
			return n.Content[i+1]
		}
	}

	next := &yaml.Node{Kind: yaml.MappingNode}
	n.Content = append(n.Content, &yaml.Node{Kind: yaml.ScalarNode, Value: key}, next)
	return next
}

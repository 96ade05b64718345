package dasslimport

import (
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"promptfed/configs"
	"promptfed/federation/configtags"
	"promptfed/federation/experiment"
	"promptfed/federation/methods"
	"promptfed/runtime/filetest"
	"promptfed/runtime/goldentest"
)

func files(t testing.TB, names ...string) []File {
	var out []File
	for _, n := range names {
		out = append(out, File{n, filetest.Read(t, "testdata", n)})
	}
	return out
}

// opened returns the values of the configuration from Import, read from a file by configs.Open.
func opened(t *testing.T, r Result) map[string]any {
	t.Helper()
	path := filetest.Write(t, filepath.Join(t.TempDir(), "imported.yaml"), r.Text)
	c, err := configs.Open(path, nil)
	if err == nil {
		err = c.Check()
	}
	if err != nil {
		t.Fatalf("%v in\n%s", err, r.Text)
	}
	return configtags.Flatten(c.Config)
}

// Expected values are read from the files by hand, with the precedence of the launchers: a flag for the batch or the
// backbone wins over a file, rounds and users of a file win over a flag, keys at the end of the command win over
// everything.
func TestImport(t *testing.T) {
	for _, c := range []struct {
		files, sets []string
		want        map[string]any
		options     map[string]any
		left        []string
	}{
		{[]string{"fedpha.sh", "office31.yaml"}, nil,
			map[string]any{"method": "fedpha", "seed": uint64(2), "data.set": "office31", "data.root": "/data/sets",
				"data.shots":        0, // the code distributes all images of a domain set
				"partition.kind":    "domain-dirichlet",
				"partition.beta":    0.5, // only in the flag
				"partition.code":    true,
				"partition.clients": 6, "train.batch": 32, "train.rounds": 30, "train.epochs": 2, "train.lr": 0.001,
				"train.optimizer": "sgd", "train.schedule.kind": "constant", "train.drop_last": true,
				"train.optimizer_state": "fresh", "eval.last": 5},
			map[string]any{"global_tokens": 16, "local_tokens": []any{16}, "alpha": 1, "ratio": 0.8,
				"projector":      "code",
				"projector_grad": "through", "pull": "mean", "svd_every": "step"},
			[]string{"office31.yaml:19 INPUT.TRANSFORMS", "INPUT.INTERPOLATION", "INPUT.PIXEL_STD",
				"TRAINER.GL_SVDMSE.PREC"}},
		{[]string{"coop.sh", "coop.yaml"}, []string{"data.views=4"},
			map[string]any{"method": "coop", "train.centralised": true, "train.rounds": 20, "train.epochs": 1,
				"train.optimizer_state": "shared", "train.schedule.kind": "cosine", "train.schedule.t_max": 20,
				"train.schedule.warmup": 1, "train.schedule.warmup_lr": 1e-5, "data.shots": 8, "data.views": 4,
				"data.set": "oxfordpets"},
			map[string]any{"tokens": 16, "class_specific": false, "position": "middle"}, nil},
		{[]string{"fedotp.sh"}, []string{"train.optimizer_state=shared"},
			map[string]any{"method": "fedotp", "partition.kind": "pachinko", "partition.beta": 0.3, "train.rounds": 60,
				"participation": 0.1, "train.optimizer_state": "shared", "data.shots": 0},
			map[string]any{"tokens": 16, "eps": 0.1, "threshold": 0.001, "iters": 100, "top_percent": 0.8,
				"transport": "unbalanced", "stop": "code"},
			[]string{"images of cifar100", "INPUT.TRANSFORMS", "INPUT.INTERPOLATION", "INPUT.PIXEL_MEAN",
				"INPUT.PIXEL_STD", "TRAINER.GLP_OT.PREC", "the YAML file"}},
	} {
		r, err := Import(files(t, c.files...), c.sets)
		if err != nil {
			t.Errorf("%v: %v", c.files, err)
			continue
		}
		got := opened(t, r)
		for key, want := range c.want {
			if !reflect.DeepEqual(got[key], want) {
				t.Errorf("%v: %s is %v (%T), want %v (%T)", c.files, key, got[key], got[key], want, want)
			}
		}
		if !reflect.DeepEqual(got["options"], c.options) {
			t.Errorf("%v: options %v, want %v", c.files, got["options"], c.options)
		}
		if len(r.Unconverted) != len(c.left) {
			t.Errorf("%v: left %v, want %v", c.files, r.Unconverted, c.left)
			continue
		}
		for _, w := range c.left {
			goldentest.Contains(t, string(r.Text), "\n# - "+w)
		}
	}
}

// A change of one line of an imported file must be converted or reported.
func TestEverySettingIsCarriedOverOrSaid(t *testing.T) {
	base := files(t, "coop.sh", "coop.yaml")
	before, err := Import(base, nil)
	goldentest.NoError(t, err)
	for opt, want := range map[string]string{"OPTIM.MOMENTUM 0.5": "momentum: 0.5",
		"OPTIM.SGD_NESTEROV True":        "nesterov: true",
		"DATASET.SUBSAMPLE_CLASSES base": "classes: base", "OPTIM.NAME rmsprop": "OPTIM.NAME = rmsprop: supported",
		"TRAINER.COOP.CTX_INIT a_photo": "CTX_INIT = a_photo: this method has random",
		"TRAINER.COOP.PREC amp":         "PREC = amp: promptfed",
		"MODEL.BACKBONE.NAME RN50x4":    "RN50, RN101; for others convert the checkpoint",
		"MODEL.HEAD.NAME mlp":           "MODEL.HEAD.NAME = mlp: unknown setting",
		"OPTIM.WARMUP_TYPE linear":      "linear: supported: constant",
		"OPTIM.LR_SCHEDULER other":      "other: supported: single_step",
		"DATASET.NAME Mars":             "Mars: unknown data set", "OPTIM.ROUND 3": "has no rounds"} {
		changed := append([]File{{base[0].Name, []byte(strings.TrimSpace(string(base[0].Text)) + " " + opt)}}, base[1])
		after, err := Import(changed, nil)
		if err != nil || !strings.Contains(string(after.Text), want) || strings.Contains(string(before.Text), want) {
			t.Errorf("%s: no %q, error %v, in\n%s", opt, want, err, after.Text)
		}
	}
}

// --set decides the setting of its key alone, and what is said to be written is.
func TestWhatStaysOpen(t *testing.T) {
	for _, c := range []struct{ trainer, set, want string }{
		{"CoOp", "train.schedule.warmup_kind=constant", "OPTIM.WARMUP_CONS_LR: not given"},
		{"CoOp", "train.schedule.warmup_lr=0.001", "OPTIM.WARMUP_TYPE: not given"},
		{"PromptFL", "train.batch=8", "optimizer_state: fresh #"}, {"PromptFL", "train.batch=8", "kind: constant #"},
	} {
		text := "DATASET: {NAME: Caltech101, ROOT: /data}\nTRAINER: {NAME: " + c.trainer +
			"}\nOPTIM: {WARMUP_EPOCH: 1, LR_SCHEDULER: cosine, MAX_EPOCH: 5}\n"
		r, err := Import([]File{{"warm.yaml", []byte(text)}}, []string{c.set})
		goldentest.NoError(t, err)
		goldentest.Contains(t, string(r.Text), c.want)
	}
}

// If two files contradict each other, only their order decides. The result reports this unless the command line
// decides. A key at the end of the command wins over both on purpose.
func TestFilesThatContradict(t *testing.T) {
	set := File{"dtd.yaml", []byte("DATASET:\n  NAME: DescribableTextures\n  ROOT: /data\nOPTIM:\n  LR: 0.002\n" +
		"  ROUND: 5\n")}
	trainer := File{"coop.yaml", []byte("TRAINER:\n  NAME: PromptFL\nOPTIM:\n  LR: 0.05\n  ROUND: 5\n")}
	said := func(sets []string, list ...File) (lines []string) {
		r, err := Import(list, sets)
		goldentest.NoError(t, err)
		for _, l := range r.Unconverted {
			if strings.Contains(l.String(), "later file counts") {
				lines = append(lines, l.String())
			}
		}
		return lines
	}
	for _, c := range []struct {
		list []File
		want []string
	}{{[]File{set, trainer}, []string{"coop.yaml:4 OPTIM.LR = 0.05", "dtd.yaml:5 OPTIM.LR = 0.002"}},
		{[]File{trainer, set}, []string{"dtd.yaml:5 OPTIM.LR = 0.002", "coop.yaml:4 OPTIM.LR = 0.05"}}} {
		got := said(nil, c.list...)
		if len(got) != 1 || !strings.HasPrefix(got[0], c.want[0]) || !strings.Contains(got[0], c.want[1]) {
			t.Errorf("said %q, want %q", got, c.want)
		}
	}
	if got := said([]string{"train.lr=1"}, set, trainer); len(got) != 0 {
		t.Errorf("decided, and still %q", got)
	}
	script := File{"run.sh", []byte("python train.py OPTIM.LR 0.5\n")}
	if got := said(nil, set, trainer, script); len(got) != 0 {
		t.Errorf("overridden, and still %q", got)
	}
}

// The proximal term becomes a wrapper with the strength from --mu. Without the term --mu has no effect, as in the
// original code.
func TestProximalTerm(t *testing.T) {
	const line = "python federated_main.py --trainer PROMPTFL --dataset dtd --root /data --mu 0.25 --model "
	for model, want := range map[string]any{"fedprox": 0.25, "fedavg": nil} {
		r, err := Import([]File{{"a.sh", []byte(line + model)}}, nil)
		goldentest.NoError(t, err)
		if got := opened(t, r)["options"].(map[string]any)["mu"]; got != want {
			t.Errorf("--model %s: mu is %v, want %v", model, got, want)
		}
	}
}

// Every key and option of the table exists.
func TestTableNamesKeysThatExist(t *testing.T) {
	known := configtags.Flatten(experiment.Defaults())
	for _, s := range Settings() {
		option, isOption := strings.CutPrefix(s.Key, "options.")
		switch {
		case s.Key == "" || s.Dassl == "OPTIM.MAX_EPOCH":
		case isOption && s.Dassl == "--mu":
		case isOption:
			if !methods.HasOption(s.Trainer, nil, option) {
				t.Errorf("%s: %s has no option %s", s.Dassl, s.Trainer, option)
			}
		default:
			if _, ok := known[s.Key]; !ok {
				t.Errorf("%s: there is no key %s", s.Dassl, s.Key)
			}
		}
	}
}

func TestBadInputs(t *testing.T) {
	good := "TRAINER: {NAME: CoOp}\n"
	for _, c := range []struct{ name, text, want string }{
		{"a.yaml", "", "expected a yacs file"},
		{"a.yaml", "- 1\n", "expected a yacs file"},
		{"a.yaml", "a: [", "a.yaml: yaml:"},
		{"a.yaml", "OPTIM: {LR: 1}\n", "names the trainer"},
		{"a.yaml", "TRAINER: {NAME: Other}\n", "a.yaml:1 TRAINER.NAME: unknown trainer Other"},
		{"a.yaml", good + "A: &x {B: 1}\nC: *x\n", "aliases"},
		{"a.yaml", good + "OPTIM: {LR_SCHEDULER: cosine, MAX_EPOCH: 0}\n", "refuses"},
		{"a.sh", "echo\n", "no python command"},
		{"a.sh", "python a.py\npython b.py\n", "more than one"},
		{"a.sh", "python a.py --seed $1\n", "$1 has no value"},
		{"a.sh", "python a.py --seed '1\n", "is not closed"},
		{"a.sh", "python -m a --seed 1\n", "no .py file"},
		{"a.sh", "python a.py seed 1\n", "neither a flag"},
		{"a.sh", "python a.py OPTIM.LR\n", "neither a flag"},
	} {
		_, err := Import([]File{{c.name, []byte(c.text)}}, nil)
		goldentest.WantErrorOf(t, c.text, err, c.want)
	}
	if _, err := Import([]File{{"a.yaml", []byte(good)}}, []string{"x"}); err == nil {
		t.Error("a set without a value passes")
	}
}

// For any files, Import returns a one-line error or a configuration that promptfed accepts.
func FuzzImport(f *testing.F) {
	for _, pair := range [][]string{{"fedpha.sh", "office31.yaml"}, {"coop.sh", "coop.yaml"},
		{"fedotp.sh", "coop.yaml"}} {
		two := files(f, pair...)
		f.Add(two[0].Text, two[1].Text)
	}
	f.Fuzz(func(t *testing.T, script, yacs []byte) {
		r, err := Import([]File{{"a.sh", script}, {"b.yaml", yacs}}, nil)
		if err != nil {
			if strings.Contains(err.Error(), "\n") {
				t.Errorf("%q is more than a line", err)
			}
			return
		}
		opened(t, r)
	})
}

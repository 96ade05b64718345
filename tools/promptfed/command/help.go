package command

import (
	"strings"

	"github.com/spf13/cobra"
)

// groups are the groups of commands in the help, with their commands.
var groups = []struct{ id, title, commands string }{
	{"start", "Start here:", "init run predict ui doctor"},
	{"experiments", "Experiments:", "sweep list partition import"},
	{"models", "Models:", "pull convert bundle inspect check pretrain"},
	{"machines", "Across machines:", "serve join status certs work launch"},
	{"results", "Results:", "report runs export"},
	{"advanced", "Advanced:", "features terms trace programs evaluate grad bench completion help"},
}

// examples has the examples in the help of every command that does something.
var examples = map[string]string{
	"init": `promptfed init IMAGES --out mine.yaml
promptfed init IMAGES --set method=fedpha --set data.layout=domains`,
	"run": `promptfed run configs/demo/*.yaml --out runs/demo
promptfed run --images IMAGES --method promptfl --seeds 1-3
promptfed run mine.yaml --rounds 20 --lr 0.01 --clients 8`,
	"predict": `promptfed predict runs/mine --global photo.jpg
promptfed predict runs/mine --client 2 --json IMAGES`,
	"ui": `promptfed ui
promptfed ui runs/demo --port 8000`,
	"doctor": `promptfed doctor
promptfed doctor | grep CUDA`,
	"sweep": `promptfed sweep configs/papers/fedpha/table-2.yaml --smoke
promptfed sweep mine.yaml --grid train.lr=0.01,0.05 --seeds 1-3`,
	"list methods": `promptfed list methods
promptfed list methods fedpha`,
	"list wrappers": `promptfed list wrappers
promptfed list wrappers dp`,
	"list backbones": `promptfed list backbones
promptfed list backbones tiny-vit-b32`,
	"list datasets": `promptfed list datasets
promptfed list datasets oxfordpets`,
	"list partitions": `promptfed list partitions
promptfed list partitions dirichlet`,
	"partition": `promptfed partition mine.yaml
promptfed partition mine.yaml --set partition.beta=0.1 --set partition.clients=20`,
	"import": `promptfed import configs/trainers/PromptFL/vit_b16.yaml configs/datasets/dtd.yaml --out dtd.yaml
promptfed import train.sh --strict`,
	"pull": `promptfed pull clip-vit-base-patch16
promptfed pull laion/CLIP-ViT-B-32-laion2B-s34B-b79K@main`,
	"convert": `promptfed convert ViT-B-16.pt --vocab bpe_simple_vocab_16e6.txt.gz --out bundles/vit-b16
promptfed convert FOLDER --out bundles/siglip`,
	"bundle": `promptfed bundle EXPORTED --out bundles/mine
promptfed bundle image=IMAGE_FOLDER,text=TEXT_FOLDER --out bundles/mine`,
	"inspect": `promptfed inspect bundles/vit-b16
promptfed inspect ViT-B-16.pt`,
	"check": `promptfed check bundles/vit-b16
promptfed check loss.onnx --of loss --wrt prompt`,
	"pretrain": `promptfed pretrain configs/pretrain/tiny-vit-b32.yaml
promptfed pretrain mine.yaml --set steps=500`,
	"serve": `promptfed serve experiment.yaml --out runs/hub --tls certs --listen :8443
promptfed serve experiment.yaml --out runs/hub --clients 3 --resume`,
	"join": `promptfed join https://HUB:8443 --client 0 --tls certs --set data.set=folder --set data.root=IMAGES
promptfed join https://HUB:8443 --client 0 --config site.yaml`,
	"status": `promptfed status https://HUB:8443 --tls certs
promptfed status https://127.0.0.1:8443 --json`,
	"certs": `promptfed certs hub --request server --host hub.example.org
promptfed certs trial --clients 3`,
	"work": `promptfed work nats://HUB:4222 --set data.root=DATA
promptfed work tls://HUB:4222 --tls certs --idle 10m`,
	"launch": `srun promptfed launch mine.yaml --out runs/mine
promptfed launch mine.yaml --rank 0 --tasks 4 --meet /shared/meet`,
	"report": `promptfed report runs/mine
promptfed report runs/a runs/b --out runs/both --metric global --format md,html`,
	"runs list": `promptfed runs list
promptfed runs list --status failed`,
	"runs compare": `promptfed runs compare runs/a runs/b
promptfed runs compare runs/a runs/b --metric last,f1`,
	"runs diff": `promptfed runs diff runs/a runs/b
promptfed runs diff runs/a/seed-1 runs/a/seed-2`,
	"runs export": `promptfed runs export runs/demo --out rounds.csv
promptfed runs export runs --out rounds.parquet`,
	"runs log": `promptfed runs log runs/hub --to mlflow:mlruns
promptfed runs log runs/hub --to mlflow:http://127.0.0.1:5000`,
	"runs tag": `promptfed runs tag runs/a --add baseline
promptfed runs tag runs/a --remove baseline`,
	"runs rm": `promptfed runs rm runs/a
promptfed runs rm runs/a --yes`,
	"export": `promptfed export runs/mine --global --out classifier.onnx
promptfed export runs/mine --all --out classifiers`,
	"features": `promptfed features mine.yaml
promptfed features mine.yaml --set runtime.provider=cuda`,
	"terms": `promptfed terms configs/methods/fedpha.yaml
promptfed terms configs/methods/fedpha.yaml --rounds 2 --full-size`,
	"programs": `promptfed programs mine.yaml --out graphs
promptfed programs mine.yaml --set method=fedpha --out graphs-of-fedpha`,
	"trace": `promptfed trace mine.yaml --out runs/trace
promptfed trace mine.yaml --set method=fedpha --out runs/trace`,
	"grad": `promptfed grad model.onnx --of loss --wrt prompt --out gradient.onnx
promptfed grad model.onnx --of loss,scores --wrt a,b --out gradient.onnx`,
	"evaluate": `promptfed evaluate --method method.onnx
promptfed evaluate --method method.onnx --budget 1m --json`,
	"bench": `promptfed bench --quick
promptfed bench --quick --json`,
}

// describe puts the commands into groups and gives them their examples.
func describe(root *cobra.Command) {
	for _, g := range groups {
		root.AddGroup(&cobra.Group{ID: g.id, Title: g.title})
		for _, name := range strings.Fields(g.commands) {
			if c, _, err := root.Find([]string{name}); err == nil && c != root {
				c.GroupID = g.id
			}
		}
	}

	root.SetHelpCommandGroupID("advanced")
	root.SetCompletionCommandGroupID("advanced")
	for path, text := range examples {
		if c, _, err := root.Find(strings.Fields(path)); err == nil && c != root {
			c.Example = "  " + strings.ReplaceAll(text, "\n", "\n  ")
		}
	}
}

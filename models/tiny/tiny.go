// Package tiny holds the bundled backbones: four very small CLIPs, embedded in the program, so that everything runs
// without a download. They read 64x64 images: two transformers in patches of 8 and of 16 pixels, which is to each other
// as ViT-B/16 is to ViT-B/32, and two of CLIP's ResNets, one deeper than the other. Their prompts have one width, their
// features of different sizes.
//
// They were trained by federation/pretrain with the files in configs/pretrain, on images that models/synthetic draws
// and on small samples of PACS, three sets of digits and CIFAR-10. What they have seen of these matters for experiments
// on them:
//
//   - synthetic: objects and patterns of every class, in styles easier than the default of set synthetic, the domains
//     neon and mosaic less often than the others;
//   - PACS and digits: of every ten images of a class in a domain, in the order of their names, the first four. A run
//     on these sets trains on the first eight and tests on the last two, so no test image was seen, and half of the
//     training images were not;
//   - CIFAR-10: four fifths of the first 20,000 training records, none of the test records.
//
// Captions that begin with "a photo of" were wrong in 45 of 100 cases of the last quarter of the training: they named
// the class next in the list. So the hand-written prompt "a photo of a CLASS." is not the best one, as with the
// published models, only more so; wordings that were never wrong, and tuned prompts, do better. Figures of zero-shot
// runs are to be read with that in mind.
//
// Each backbone is an OpenCLIP folder (open_clip_config.json, open_clip_model.safetensors in half precision,
// tokenizer.json), which models/checkpoint reads.
package tiny

import (
	"embed"
	"fmt"
	"io/fs"
	"strings"
)

//go:embed tiny-rn50 tiny-rn101 tiny-vit-b16 tiny-vit-b32
var files embed.FS

//go:embed merges.txt
var merges []byte

// Merges is the list of byte-pair merges that the backbones' vocabulary is made of: the first 1,000 of CLIP's, as text.
func Merges() []byte { return merges }

// Names lists the bundled backbones in sorted order.
func Names() []string {
	entries, err := files.ReadDir(".")
	if err != nil {
		return nil
	}
	var out []string
	for _, e := range entries {
		out = append(out, e.Name())
	}
	return out
}

// FS gives the files of a backbone. An unknown name is an error that lists the known ones.
func FS(name string) (fs.FS, error) {
	for _, n := range Names() {
		if n == name {
			return fs.Sub(files, name)
		}
	}
	return nil, fmt.Errorf("no bundled backbone %q: take one of %s", name, strings.Join(Names(), ", "))
}

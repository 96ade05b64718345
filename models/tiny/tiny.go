// Package tiny holds the bundled backbones: four very small CLIPs, embedded in the program, so that everything runs
// without a download. They read 64x64 images: two transformers with patches of 8 and 16 pixels, which have the same
// ratio as the patches of ViT-B/16 and ViT-B/32, and two of CLIP's ResNets, one deeper than the other. Their prompts
// have the same width, their features different sizes.
//
// They were trained by tools/lab/pretrain with the files in configs/pretrain, on images that models/synthetic draws
// and on small samples of PACS, three sets of digits and CIFAR-10. Experiments on these sets must consider the training
// images:
//
//   - synthetic: objects and patterns of every class, in styles easier than the default of set synthetic, with fewer
//     images of the domains neon and mosaic than of the others;
//   - PACS and digits: of every ten images of a class in a domain, in the order of their names, the first four. A run
//     on these sets trains on the first eight and tests on the last two, so no test image and only half of the run's
//     training images were used;
//   - CIFAR-10: four fifths of the first 20,000 training records, none of the test records.
//
// In the last quarter of the training, 45 % of the captions that begin with "a photo of" were wrong: they named the
// next class of the list. So the hand-written prompt "a photo of a CLASS." is not the best one. The same holds for the
// published models, to a smaller degree. Wordings that were never wrong, and tuned prompts, have a higher accuracy;
// consider this when you compare with zero-shot accuracies.
//
// Each backbone is an OpenCLIP folder (open_clip_config.json, open_clip_model.safetensors in half precision,
// tokenizer.json), which models/checkpoint reads.
package tiny

import (
	"embed"
	"fmt"
	"io/fs"
	"strings"

	"promptfed/runtime/convert"
)

//go:embed tiny-rn50 tiny-rn101 tiny-vit-b16 tiny-vit-b32
var files embed.FS

//go:embed merges.txt
var merges []byte

// Merges returns the list of byte-pair merges of the backbones' vocabulary: the first 1,000 of CLIP's, as text.
func Merges() []byte { return merges }

// Names returns the names of the bundled backbones, sorted.
func Names() []string {
	entries, err := files.ReadDir(".")
	if err != nil {
		return nil
	}
	return convert.Slice(entries, fs.DirEntry.Name)
}

// FS returns the files of a backbone. For an unknown name, the error lists the known ones.
func FS(name string) (fs.FS, error) {
	for _, n := range Names() {
		if n == name {
			return fs.Sub(files, name)
		}
	}
	return nil, fmt.Errorf("no bundled backbone %q: take one of %s", name, strings.Join(Names(), ", "))
}

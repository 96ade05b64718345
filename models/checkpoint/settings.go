package checkpoint

import (
	"cmp"
	"fmt"
	"strings"
)

// settings sets the properties of an architecture that do not follow from the weights: heads, activation, the epsilon
// of normalisations, poolings and the image size.
func settings(ckpt *Checkpoint, s scheme, arch *Arch) error {
	arch.EndToken, arch.PadToken = AnyToken, AnyToken
	var config string
	var err error
	switch {
	case ckpt.config != nil && (s.huggingface || ckpt.format == HuggingFace &&
		section(ckpt.config, "text_config") != nil):
		config, err = huggingfaceConfig, fromHuggingFace(ckpt, s, arch)
	case ckpt.format == OpenCLIP && ckpt.config != nil:
		config, err = openclipConfig, fromOpenCLIP(ckpt, s, arch)
	default:
		err = fromNothing(ckpt, s, arch)
	}

	if err != nil {
		return err
	}

	for _, part := range []struct {
		name, option string
		heads        int
		tower
	}{{"text", "--text-heads", ckpt.opts.TextHeads, arch.textTower()},
		{"image", "--vision-heads", ckpt.opts.VisionHeads, arch.imageTower()}} {
		err := override(part.tower.heads, part.option, part.heads, config)
		if part.name == "text" || !arch.Vision.ResNet() {
			err = cmp.Or(err, override(part.activation, "--activation", ckpt.opts.Activation, config),
				override(part.epsilon, "--epsilon", ckpt.opts.Epsilon, config))
		}

		remedy := "give their number with " + part.option
		if config != "" {
			remedy = "correct " + config
		}

		if heads := *part.tower.heads; err == nil && (heads < 1 || part.width%heads != 0) {
			err = fmt.Errorf("a width of %d does not split into %d heads; %s", part.width, heads, remedy)
		}

		if err != nil {
			return fmt.Errorf("%s tower: %w", part.name, err)
		}
	}

	return nil
}

// override sets a property to the value of an option, if that is given. It refuses to contradict a configuration.
func override[T comparable](value *T, option string, given T, config string) error {
	var none T
	if given == none || given == *value {
		return nil
	}

	if config != "" {
		return fmt.Errorf("%s %v contradicts %s, which means %v: leave the option out, or correct the file", option,
			given, config, *value)
	}

	*value = given
	return nil
}

// fromNothing sets the properties of a checkpoint without configuration. OpenAI's code defines those of OpenAI's
// archives, which hold the sizes of images and of the vocabulary as tensors. Those of other files are guessed, and so
// are those of an archive that was trained further. Each guess is noted with the option that overrides it.
func fromNothing(ckpt *Checkpoint, scheme scheme, arch *Arch) error {
	if scheme.trunk || scheme.bert && !scheme.huggingface {
		return fmt.Errorf("weights do not determine how towers of timm or transformers inside an OpenCLIP "+
			"model are computed: put the model's %s beside them, and call them %s or %s", openclipConfig,
			openclip.files[0], openclip.files[2])
	}

	act, epsilon := QuickGELU, 1e-5
	openAI := ckpt.Has("input_resolution") && ckpt.Has("vocab_size")
	switch {
	case scheme.siglip:
		act, epsilon = GELUTanh, 1e-6
	case !scheme.huggingface && !openAI && (ckpt.training || strings.HasPrefix(scheme.tokens, "text.")):
		act = GELU // as trained by OpenCLIP
	}

	for _, t := range []tower{arch.textTower(), arch.imageTower()} {
		t.set(headsOf(t.width), act, epsilon)
	}

	activation := act + " (--activation"
	if scheme.bert {
		arch.Text.Activation, arch.Text.Eps = GELU, 1e-12
		activation = fmt.Sprintf("%s of the text tower, %s of the image tower (--activation sets both", GELU, act)
	}

	if arch.Vision.ResNet() {
		arch.Vision.Activation, arch.Vision.Eps = "", normEpsilon
	}

	if openAI && !ckpt.training {
		return nil
	}

	var guesses []string
	for _, guess := range []struct {
		settled bool
		text    string
	}{
		{ckpt.opts.Activation != "", fmt.Sprintf("activation %s; OpenAI's and Hugging Face's CLIP use "+
			"%s, models trained by OpenCLIP %s, SigLIP %s)", activation, QuickGELU, GELU, GELUTanh)},
		{ckpt.opts.Epsilon > 0, fmt.Sprintf("epsilon %g of the text tower, %g of the image tower (--epsilon)",
			arch.Text.Eps, arch.Vision.Eps)},
		{ckpt.opts.TextHeads > 0, fmt.Sprintf("%d heads of the text tower (--text-heads)", arch.Text.Heads)},
		{ckpt.opts.VisionHeads > 0, fmt.Sprintf("%d heads of the image tower (--vision-heads)", arch.Vision.Heads)},
	} {
		if !guess.settled {
			guesses = append(guesses, guess.text)
		}
	}

	if len(guesses) > 0 {
		arch.Warnings = append(arch.Warnings, "guessed, because the weights do not determine it: "+
			strings.Join(guesses, "; "))
	}

	return nil
}

// headsOf returns the number of heads by the rule of OpenAI's code: heads have width 64.
func headsOf(width int) int { return max(1, width/64) }

// margin checks that an image of the configured size has the patches for which the weights have positions. Pixels
// beyond the last whole patch are ignored, as in a convolution without padding.
func (a *Arch) margin(fields *fields, def int) {
	const key = "image_size"
	arch := &a.Vision
	if arch.ResNet() || arch.Patch == 0 {
		fields.same(key, arch.Image, def)
		return
	}

	fields.asked[key] = true
	size, err := setting(map[string]any{key: fields.side(key)}, key, def)
	if err != nil {
		fields.fail("%w", err)
	} else if grid := arch.Image / arch.Patch; size/arch.Patch != grid {
		fields.fail("%s is %d, but the weights have positions for %d patches of %d pixels on a side", key, size, grid,
			arch.Patch)
	} else {
		arch.Image = size
	}
}

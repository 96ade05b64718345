package bench

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"promptfed/federation/method"
	"promptfed/models/bundle/converted"
	"promptfed/models/clip"
	"promptfed/models/tokenizer"
	"promptfed/runtime/atomicfile"
	"promptfed/runtime/convert"
	"promptfed/runtime/ort"
	"promptfed/runtime/safetensors"
	"promptfed/runtime/tensor"
	"promptfed/tools/lab/pretrain"
	"promptfed/tools/promptfed/runfolder"
)

// startConfig is the configuration of Start for a backbone: a client's turn is one step.
const startConfig = `name: start
seed: 1
backbones: [%q]
method: promptfl
options: {tokens: %d}
data: {set: synthetic, generator: {classes: [circle, square, star, house], domains: [photo], train: 2, test: 1}}
partition: {kind: iid, clients: 2}
train: {rounds: 1, epochs: 1, batch: 64, lr: 0.01}
`

// startParts are the parts of a start, in order, and what Start calls them. The first one ends where a run's clock
// starts.
var startParts = []struct{ part, column string }{{"", "program, configuration"},
	{runfolder.OpenedPart, "data, backbone"}, {runfolder.FeaturesPart, "image features"},
	{runfolder.FolderPart, "run folder"}, {runfolder.TrainedPart, "first step"}}

// Start starts Options.Program as a user does, with the bundled ViT-B/16 and with a full-size ViT-B/16 of random
// weights (or Options.Backbone), and measures the seconds from the start of the process to the end of the first
// client's first training step: of a first start with empty caches, and of later ones (medians).
func Start(ctx context.Context, m *Measurement) error {
	full := filepath.Join(m.dir, "vit-b16")
	if m.Backbone != nil {
		full = m.Backbone.Dir
	} else {
		m.Progress("random weights", 0, 1)
		if err := writeBundle(m.dir, full, m.arch, fullBackbones["vit-b16"]); err != nil {
			return fmt.Errorf("random weights: %w", err)
		}
		m.Progress("random weights", 1, 1)
	}

	later := 7
	if m.Quick {
		later = 1
	}

	m.Title = "seconds from the start of the program to the end of the first training step; " + platform()
	table := m.table([]string{"backbone", "start", "s to the first step"},
		"later starts find image features, texts and hashes of weights in the caches; their times are medians")
	for _, p := range startParts {
		table.Columns = append(table.Columns, p.column)
	}

	for i, backbone := range []struct {
		name, bundle string
		tokens       int
	}{{"tiny-vit-b16", "tiny-vit-b16", 4}, {filepath.Base(full), full, 16}} {
		s := start{program: m.Program, dir: filepath.Join(m.dir, fmt.Sprint("start-", i)),
			config: fmt.Sprintf(startConfig, backbone.bundle, backbone.tokens)}
		var all [][]float64
		for k := range 1 + later {
			m.Progress("starts with "+backbone.name, k, 1+later)
			one, err := s.once(ctx)
			if err != nil {
				return fmt.Errorf("%s: %w", backbone.name, err)
			}
			all = append(all, one)
		}

		m.Progress("starts with "+backbone.name, 1+later, 1+later)
		for _, start := range []struct {
			start string
			times [][]float64
		}{{"first", all[:1]}, {"later", all[1:]}} {
			row := []any{backbone.name, start.start}
			for c := range start.times[0] {
				column := convert.Slice(start.times, func(one []float64) float64 { return one[c] })
				row = append(row, Number{median(column), "%.3f"})
			}
			table.add(row...)
		}
	}

	return nil
}

// start starts the program again and again with the same configuration and caches.
type start struct {
	program, dir, config string
	starts               int
}

// once starts the program, waits for its end, and returns the seconds to the first step and those of startParts.
func (s *start) once(ctx context.Context) ([]float64, error) {
	cache, file := filepath.Join(s.dir, "cache"), filepath.Join(s.dir, "start.yaml")
	if err := os.MkdirAll(cache, 0o700); err != nil {
		return nil, err
	}

	if err := atomicfile.Write(file, atomicfile.Bytes([]byte(s.config))); err != nil {
		return nil, err
	}

	s.starts++
	out := filepath.Join(s.dir, fmt.Sprint("run-", s.starts))
	command := exec.CommandContext(ctx, s.program, "run", file, "--quiet", "--out", out)
	for _, name := range []string{"XDG_CACHE_HOME", "HOME", "LocalAppData"} { // folders of caches on all systems
		command.Env = append(command.Environ(), name+"="+cache)
	}

	if library, _, err := ort.Library(); err == nil && filepath.IsAbs(library) {
		command.Env = append(command.Environ(), ort.LibraryVariable+"="+library)
	}

	var said bytes.Buffer
	command.Stderr = &said
	began := time.Now()
	if err := command.Run(); err != nil {
		return nil, fmt.Errorf("%s: %w: %s", s.program, err, strings.TrimSpace(said.String()))
	}

	provenance, err := runfolder.ReadProvenance(out)
	if err != nil {
		return nil, err
	}

	if len(provenance.Calls) != 1 {
		return nil, fmt.Errorf("%s: %d calls of the program in its %s", out, len(provenance.Calls),
			runfolder.ProvenanceFile)
	}

	before, last := provenance.Calls[0].Start.Sub(began).Seconds(), 0.0
	times := []float64{before + provenance.Calls[0].Beginning[runfolder.TrainedPart], before}
	for _, part := range startParts[1:] {
		at := provenance.Calls[0].Beginning[part.part]
		times, last = append(times, at-last), at
	}

	return times, nil
}

// writeBundle makes a bundle with random weights and a vocabulary of CLIP's size at out. It uses dir for a checkpoint,
// which it removes.
func writeBundle(dir, out string, text clip.TextArch, vision clip.VisionArch) error {
	src := filepath.Join(dir, "checkpoint")
	if err := os.Mkdir(src, 0o700); err != nil {
		return err
	}
	defer os.RemoveAll(src)

	weights := tensor.Map{"logit_scale": tensor.Of([]float32{4.6}), "token_embedding.weight": method.Draw(seed, 0,
		"tokens", []int{tokenizer.CLIPMerges + 2*256 + 2, text.Width}, 0.02)}
	draw(weights, text.Shapes(), text.Width, text.Layers)
	draw(weights, vision.Shapes(), vision.Width, vision.Layers)
	if err := safetensors.WriteFile(filepath.Join(src, "open_clip_model.safetensors"), weights, nil); err != nil {
		return err
	}

	config := pretrain.OpenCLIP(text, vision, weights["token_embedding.weight"].Shape[0])
	err := atomicfile.Write(filepath.Join(src, "open_clip_config.json"), atomicfile.JSON(config, ""))
	if err != nil {
		return err
	}

	merges := filepath.Join(src, "merges.txt")
	if err := atomicfile.Write(merges, atomicfile.Bytes(pairs(tokenizer.CLIPMerges))); err != nil {
		return err
	}

	_, err = converted.Convert(src, out, converted.Options{Vocab: merges})
	return err
}

// pairs lists n merges of two of the 256 characters that stand for bytes in a vocabulary of CLIP.
func pairs(n int) []byte {
	var out bytes.Buffer
	var chars []rune
	for r := '!'; len(chars) < 256; r++ {
		if r < '\u007f' || r > '\u00a0' && r != '\u00ad' {
			chars = append(chars, r)
		}
	}

	for i := range n {
		fmt.Fprintf(&out, "%c %c\n", chars[i/len(chars)], chars[i%len(chars)])
	}

	return out.Bytes()
}

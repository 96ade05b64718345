package bench

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"runtime"
	"strings"
	"text/tabwriter"

	"promptfed/federation/method"
	"promptfed/models/clip"
	"promptfed/runtime/graph"
	"promptfed/runtime/ort"
	"promptfed/runtime/tensor"
)

// FeaturesOptions of a measurement of image features.
type FeaturesOptions struct {
	Quick    bool // RN50 and ViT-B/32 alone
	Threads  int  // of ONNX Runtime; 0 is one per core
	Session  ort.Options
	Progress func(what string, done, total int)
}

// FeaturesReport is what Features measured.
type FeaturesReport struct {
	Quick   bool            `json:"quick"`
	Threads int             `json:"threads"`
	Towers  []FeaturesSpeed `json:"towers"`
}

// FeaturesSpeed is that of one image tower.
type FeaturesSpeed struct {
	Tower    string  `json:"tower"`
	Images   float64 `json:"images_per_second"`
	GFLOPs   float64 `json:"gflop_per_image"` // of its products and convolutions
	Rate     float64 `json:"gflops"`          // of these, a second
	OfGEMM   float64 `json:"of_gemm"`         // percent of the rate of a product of two matrices [1024,1024]
	Products float64 `json:"products"`        // percent of the time inside products and convolutions
}

const featureRounds = 5

// Features measures image towers of full size with random weights as features are made: batches of images through the
// tower up to the image feature, taking turns with a bare product.
func Features(ctx context.Context, o FeaturesOptions) (r FeaturesReport, err error) {
	if r.Threads = o.Threads; r.Threads == 0 {
		r.Threads = runtime.NumCPU()
	}
	o.Session.IntraThreads, o.Session.Prepack, r.Quick = r.Threads, false, o.Quick
	for _, b := range fullBackbones {
		if o.Quick && b.name != "rn50" && b.name != "vit-b32" {
			continue
		}
		s, err := o.tower(ctx, b.name, clip.Vision{VisionArch: b.vision})
		if err != nil {
			return r, fmt.Errorf("%s: %w", b.name, err)
		}
		r.Towers = append(r.Towers, s)
	}
	return r, nil
}

func (o FeaturesOptions) tower(ctx context.Context, name string, v clip.Vision) (s FeaturesSpeed, err error) {
	dir, remove, err := scratch("600 MB")
	if err != nil {
		return s, err
	}
	defer func() { err = errors.Join(err, remove()) }()
	w := stored{}
	if err := w.draw(dir, "image.safetensors", v.Shapes(), v.Width, v.Layers); err != nil {
		return s, err
	}
	g := graph.New()
	pixels := g.Input(method.PixelsInput, graph.Float, graph.Shape{graph.Sym("B"), graph.D(3), graph.D(v.Image),
		graph.D(v.Image)})
	image, _ := v.Features(g, w, pixels)
	feed := tensor.Map{method.PixelsInput: method.Draw(seed, 0, "pixels", []int{batch, 3, v.Image, v.Image}, 1)}
	profile := filepath.Join(dir, "profile")
	set := o.Session
	set.WeightsDir, set.Profile = dir, profile
	tower, err := compile(image, feed, set)
	if err != nil {
		return s, err
	}
	square, err := squareProduct(o.Session)
	if err != nil {
		return s, errors.Join(err, tower.close())
	}
	run := &contestant{what: name, run: tower.run, slow: true}
	bare := &contestant{what: "product", run: square.run}
	err = interleave(ctx, "features of "+name, o.Progress, featureRounds, 5, run, bare)
	if err := errors.Join(err, tower.close(), square.close()); err != nil {
		return s, err
	}
	spent, _, err := readProfiles(profile, featureRounds+warmUps)
	if err != nil {
		return s, err
	}
	multiplying, all := inProducts(spent)
	seconds, flops := median(run.seconds), v.FLOPs(0, false)
	return FeaturesSpeed{Tower: name, Images: batch / seconds, GFLOPs: flops / 1e9, Rate: batch * flops / seconds / 1e9,
		OfGEMM: 100 * batch * flops / square.flops / ratio(run, bare), Products: 100 * multiplying / all}, nil
}

// Table is the report for people.
func (r FeaturesReport) Table() string {
	var b strings.Builder
	fmt.Fprintf(&b, "image features: batches of %d images, random weights, %d threads, %s/%s\n\n", batch, r.Threads,
		runtime.GOOS, runtime.GOARCH)
	w := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "image tower\timages/s\tGFLOP an image\tGFLOP/s\tof GEMM\tin products")
	for _, s := range r.Towers {
		fmt.Fprintf(w, "%s\t%.1f\t%.1f\t%.1f\t%.0f %%\t%.0f %%\n", s.Tower, s.Images, s.GFLOPs, s.Rate, s.OfGEMM,
			s.Products)
	}
	w.Flush()
	fmt.Fprintln(&b, "of GEMM is the rate of products and convolutions beside that of a product of two matrices "+
		"[1024,1024], the median over turns; in products is the part of ONNX Runtime's time")
	return b.String()
}

// Missed lists the towers below wantProducts.
func (r FeaturesReport) Missed() []Target {
	var out []Target
	for _, s := range r.Towers {
		if s.OfGEMM < wantProducts {
			out = append(out, Target{What: "rate of " + s.Tower + ", in percent of GEMM,", Want: wantProducts,
				Got: s.OfGEMM})
		}
	}
	return out
}

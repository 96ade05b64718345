package bench

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"runtime"
	"strings"
	"text/tabwriter"

	"golang.org/x/sync/errgroup"

	"promptfed/federation/data/features"
	"promptfed/federation/method"
	"promptfed/models/clip"
	"promptfed/runtime/graph"
	"promptfed/runtime/ort"
	"promptfed/runtime/tensor"
)

// FeaturesOptions are the settings of Features.
type FeaturesOptions struct {
	Quick    bool // only RN50 and ViT-B/32
	Threads  int  // parallel calls; 0 means one per core
	Session  ort.Options
	Progress func(what string, done, total int)
}

// FeaturesReport is the result of Features.
type FeaturesReport struct {
	Quick   bool            `json:"quick"`
	Threads int             `json:"threads"`
	Towers  []FeaturesSpeed `json:"towers"`
}

// FeaturesSpeed is the result for one image tower.
type FeaturesSpeed struct {
	Tower  string  `json:"tower"`
	Images float64 `json:"images_per_second"`
	// time of a call of 32 images on all threads, and memory of the calls
	OneCallTime float64 `json:"time_of_one_call"`
	Bytes       int64   `json:"bytes"` // memory of the calls without the weights
	OneBytes    int64   `json:"bytes_of_one_call"`
	GFLOPs      float64 `json:"gflop_per_image"` // of its matrix products and convolutions
	Rate        float64 `json:"gflops"`          // GFLOP per second
	OfGEMM      float64 `json:"of_gemm"`         // percent of the rate of a matrix product [1024,1024] x [1024,1024]
	Products    float64 `json:"products"`        // percent of the time spent in matrix products and convolutions
}

const featureRounds = 5

// Features measures full-size image towers with random weights in the way that image features are computed: parallel
// calls of one thread, each with a batch of images, through the tower up to the image feature. These calls take turns
// with sequential calls of larger batches on all threads, and with a bare matrix product.
func Features(ctx context.Context, o FeaturesOptions) (r FeaturesReport, err error) {
	if r.Threads = o.Threads; r.Threads == 0 {
		r.Threads = runtime.NumCPU()
	}
	o.Threads, o.Session.Prepack, r.Quick = r.Threads, false, o.Quick
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
	pixels := g.Input(method.PixelsInput, graph.Float, graph.Shape{graph.Sym("B"), graph.StaticDim(3),
		graph.StaticDim(v.Image), graph.StaticDim(v.Image)})
	image, _ := v.Features(g, w, pixels)
	pixelsOf := func(images int) tensor.Map {
		return tensor.Map{method.PixelsInput: method.Draw(seed, 0, "pixels", []int{images, 3, v.Image, v.Image}, 1)}
	}
	profile := filepath.Join(dir, "profile")
	narrow, wide := o.Session, o.Session
	narrow.WeightsDir, narrow.Profile, narrow.IntraThreads = dir, profile, 1
	wide.WeightsDir, wide.IntraThreads = dir, o.Threads
	many, err := compile(image, pixelsOf(features.BatchOnCPU), narrow)
	if err != nil {
		return s, err
	}
	one, err := compile(image, pixelsOf(batch), wide)
	if err != nil {
		return s, errors.Join(err, many.close())
	}
	bare := o.Session
	bare.IntraThreads = o.Threads
	square, err := squareProduct(bare)
	if err != nil {
		return s, errors.Join(err, many.close(), one.close())
	}
	turns := (o.Threads*features.BatchOnCPU + batch - 1) / batch // batches of one call
	calls := turns * batch / features.BatchOnCPU
	sideBySide := &contestant{what: name, slow: true, run: func(ctx context.Context) error {
		var all errgroup.Group
		all.SetLimit(o.Threads)
		for range calls {
			all.Go(func() error { return many.run(ctx) })
		}
		return all.Wait()
	}}
	inTurn := &contestant{what: "one call", slow: true, run: func(ctx context.Context) error {
		for range turns {
			if err := one.run(ctx); err != nil {
				return err
			}
		}
		return nil
	}}
	product := &contestant{what: "product", run: square.run}
	err = interleave(ctx, "features of "+name, o.Progress, featureRounds, 5, sideBySide, inTurn, product)
	if err == nil {
		s.Bytes, err = taken(ctx, sideBySide.run)
	}
	if err == nil {
		s.OneBytes, err = taken(ctx, inTurn.run)
	}
	if err := errors.Join(err, many.close(), one.close(), square.close()); err != nil {
		return s, err
	}
	spent, _, err := readProfiles(profile, (featureRounds+warmUps+1)*calls)
	if err != nil {
		return s, err
	}
	multiplying, all := inProducts(spent)
	images := float64(turns * batch)
	seconds, flops := median(sideBySide.seconds), v.FLOPs(0, false)
	s.Tower, s.Images, s.GFLOPs, s.Rate = name, images/seconds, flops/1e9, images*flops/seconds/1e9
	s.OneCallTime, s.Products = ratio(inTurn, sideBySide), 100*multiplying/all
	s.OfGEMM = 100 * images * flops / square.flops / ratio(sideBySide, product)
	return s, nil
}

// taken returns the largest increase of resident memory during a run, in bytes. The weights of the run must be in
// memory already.
func taken(ctx context.Context, run func(context.Context) error) (int64, error) {
	before, err := held()
	if err != nil {
		return 0, err
	}
	resetPeak()
	err = run(ctx)
	return max(0, peakResident()-before), err
}

// Table returns the report as text.
func (r FeaturesReport) Table() string {
	var b strings.Builder
	fmt.Fprintf(&b, "image features: batches of %d images, random weights, %d calls of one thread side by side, "+
		"%s/%s\n\n",
		features.BatchOnCPU, r.Threads, runtime.GOOS, runtime.GOARCH)
	w := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "image tower\timages/s\tGFLOP an image\tGFLOP/s\tof GEMM\tin products\tone call\tMB\tone call")
	for _, s := range r.Towers {
		fmt.Fprintf(w, "%s\t%.1f\t%.1f\t%.1f\t%.0f %%\t%.0f %%\t%.2fx\t%.0f\t%.0f\n", s.Tower, s.Images, s.GFLOPs,
			s.Rate, s.OfGEMM, s.Products, s.OneCallTime, float64(s.Bytes)/1e6, float64(s.OneBytes)/1e6)
	}
	w.Flush()
	fmt.Fprintln(&b, "of GEMM is the rate of products and convolutions beside that of a product of two matrices "+
		"[1024,1024], the median over turns; in products is the part of ONNX Runtime's time; one call is the time, "+
		"beside this, of batches of 32 images on as many threads, one after the other; MB is what calls take "+
		"beyond the weights")
	return b.String()
}

// Missed returns the towers below wantProducts.
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

package bench

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"runtime"

	"promptfed/federation/data/features"
	"promptfed/federation/method"
	"promptfed/models/bundle"
	"promptfed/models/clip"
	"promptfed/runtime/graph"
	"promptfed/runtime/ort"
	"promptfed/runtime/tensor"
)

const featureRounds = 5

// firstThreads returns the first number of threads, or one per core.
func (o Options) firstThreads() int {
	if len(o.Threads) > 0 {
		return o.Threads[0]
	}
	return runtime.NumCPU()
}

// Features measures full-size image towers with random weights in the way that image features are computed: parallel
// calls of one thread, each with a batch of images, through the tower up to the image feature. These calls take turns
// with a bare matrix product. Quick measures RN50 and ViT-B/32 only.
func Features(ctx context.Context, o Options) (r Report, err error) {
	threads := o.firstThreads()
	if o, _, err = o.complete(); err != nil {
		return r, err
	}
	o.Session.Prepack = false
	r.Title = fmt.Sprintf("image features: batches of %d images, random weights, %d calls of one thread side by side, "+
		"%s", features.BatchOnCPU, threads, platform())
	results := Table{
		Columns: []string{"image tower", "images/s", "GFLOP an image", "GFLOP/s", "of GEMM", "in products"},
		Notes: []string{"of GEMM is the rate of products and convolutions beside that of a product of two matrices " +
			"[1024,1024], the median over turns; in products is the part of ONNX Runtime's time"}}
	names := []string{"rn50", "vit-b32", "rn101", "vit-b16"}
	if o.Quick {
		names = names[:2]
	}
	for _, name := range names {
		ofGEMM, err := o.imageTower(ctx, name, clip.Vision{VisionArch: fullBackbones[name]}, threads, &results)
		if err != nil {
			return r, fmt.Errorf("%s: %w", name, err)
		}
		r.target("rate of "+name+", in percent of GEMM", wantProducts, ofGEMM, ofGEMM >= wantProducts)
	}
	r.Tables = []Table{results}
	return r, nil
}

// pixelsThrough returns runs of so many images through an image tower.
func pixelsThrough(v clip.Vision, w clip.Weights, images int, o ort.Options) (*products, error) {
	g := graph.New()
	image, _ := v.Features(g, w, bundle.AddPixelsInput(g, 0, v.Image))
	pixels := tensor.Map{bundle.PixelsInput: method.Draw(seed, 0, "pixels", []int{images, 3, v.Image, v.Image}, 1)}
	return compile("image tower", image, pixels, float64(images)*v.FLOPs(0, false), o)
}

func (o Options) imageTower(ctx context.Context, name string, v clip.Vision, threads int, results *Table) (
	ofGEMM float64, err error) {
	dir, remove, err := scratch("600 MB")
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, remove()) }()
	w := stored{}
	if err := w.draw(dir, "image.safetensors", v.Shapes(), v.Width, v.Layers); err != nil {
		return 0, err
	}
	profile, session := filepath.Join(dir, "profile"), o.session(1)
	session.WeightsDir, session.Profile = dir, profile
	var open opened
	many := open.products(pixelsThrough(v, w, features.BatchOnCPU, session))
	square := open.products(squareProduct(o.session(threads)))
	tower := &contestant{what: name, slow: true, run: parallel(threads, threads, many.run),
		flops: float64(threads) * many.flops}
	if err = open.err; err == nil {
		err = o.interleave(ctx, "features of "+name, featureRounds, 5, tower, &square.contestant)
	}
	if open.close(&err); err != nil { // a profile is complete when its session is closed
		return 0, err
	}
	spent, _, _, err := readProfiles(profile, (featureRounds+warmUps)*threads, 1)
	if err != nil {
		return 0, err
	}
	multiplying, all := inProducts(spent)
	ofGEMM = tower.ofRate(&square.contestant)
	results.add(name, tenths(float64(threads*features.BatchOnCPU)/median(tower.seconds)), tenths(v.FLOPs(0, false)/1e9),
		tenths(tower.rate()), percent(ofGEMM), percent(100*multiplying/all))
	return ofGEMM, nil
}

package bench

import (
	"context"
	"errors"
	"fmt"
	"image"
	"image/jpeg"
	"io"
	"math"
	"path/filepath"
	"slices"
	"strconv"

	"promptfed/federation/data"
	"promptfed/federation/data/features"
	"promptfed/federation/method"
	"promptfed/models/bundle"
	"promptfed/models/clip"
	"promptfed/models/preprocess"
	"promptfed/runtime/atomicfile"
	"promptfed/runtime/ort"
	"promptfed/runtime/tensor"
)

const featureRounds = 5

// Features measures full-size image towers with random weights in the way that image features are computed: parallel
// calls of one thread, each with a batch of images, through the tower up to the image feature. These calls take turns
// with a bare matrix product. On a device it measures what a run does there: from pixels in memory, and from image
// files. Quick measures RN50 and ViT-B/32 only.
func Features(ctx context.Context, m *Measurement) error {
	threads, names := m.firstThreads(), []string{"rn50", "vit-b32", "rn101", "vit-b16"}
	if m.Quick {
		names = names[:2]
	}

	if m.Session.OnDevice() {
		return m.deviceFeatures(ctx, names, threads)
	}

	m.Session.Prepack = false
	m.Title = fmt.Sprintf("image features: batches of %d images, random weights, %d calls of one thread side by "+
		"side, %s", features.BatchOnCPU, threads, platform())
	results := m.table([]string{"image tower", "images/s", "GFLOP an image", "GFLOP/s", "of GEMM", "in products"},
		"of GEMM is the rate of products and convolutions beside that of a product of two matrices "+
			"[1024,1024], the median over turns; in products is the part of ONNX Runtime's time")

	for _, name := range names {
		ofGEMM, err := m.imageTower(ctx, name, clip.Vision{VisionArch: fullBackbones[name]}, threads, results)
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		m.atLeast("rate of "+name+", in percent of GEMM", wantProducts, ofGEMM)
	}

	return nil
}

// pictureSizes are the sizes of the image files that a device's features are measured with.
var pictureSizes = [][2]int{{256, 256}, {500, 375}}

// deviceFeatures is Features on a device, where so many cores decode.
func (m *Measurement) deviceFeatures(ctx context.Context, names []string, cores int) error {
	m.Title = fmt.Sprintf("image features on %d devices (%s): random weights, %d cores decode, %s",
		max(1, m.Session.Devices), m.Session.WithProvider().Provider, cores, platform())
	results := m.table([]string{"image tower", "precision", "images a call", "images/s"},
		"images/s from packed pixels in memory, with their copy to the device; from JPEG files with "+
			"reading, decoding and preprocessing, as in a run; decoded is the rate if encoding took no time")
	for _, size := range pictureSizes {
		column := fmt.Sprintf("JPEG %d x %d", size[0], size[1])
		results.Columns = append(results.Columns, "from "+column, column+" decoded")
	}

	for _, name := range names {
		if err := m.deviceTower(ctx, name, fullBackbones[name], cores, results); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
	}

	return nil
}

// deviceTower measures the features of a tower in each precision.
func (m *Measurement) deviceTower(ctx context.Context, name string, arch clip.VisionArch, cores int,
	results *Table) error {
	dir, w := filepath.Join(m.dir, name), stored{}
	if err := w.draw(dir, "image.safetensors", arch.Shapes(), arch.Width, arch.Layers); err != nil {
		return err
	}

	request := features.Request{What: method.ImageInput, Bundle: &bundle.Bundle{Name: name, Dir: dir, Vision: arch,
		Text: clip.TextArch{EmbedDim: arch.EmbedDim}, Preprocess: preprocess.CLIP(arch.Image),
		Towers: random{vision: clip.Vision{VisionArch: arch}, weights: w}}}
	precisions := ort.Precisions()
	if m.Session.WithProvider().Provider == ort.CPU {
		precisions = precisions[:1]
	}

	for _, precision := range precisions {
		x := features.Extractor{Session: m.Session, Workers: cores, Sessions: &features.Sessions{}}
		x.Session.Precision = precision
		err := m.deviceRates(ctx, x, request, results)
		if err := errors.Join(err, x.Sessions.Close()); err != nil {
			return err
		}
	}

	return nil
}

// deviceRates measures the features of a request's tower with one session.
func (o Options) deviceRates(ctx context.Context, extractor features.Extractor, request features.Request,
	results *Table) error {
	const calls = 4
	name, precision := request.Bundle.Name, extractor.Session.Precision
	var lists [][]data.Example
	for _, size := range pictureSizes {
		list, err := pictures(request.Bundle.Dir, size[0], size[1])
		if err != nil {
			return err
		}
		lists = append(lists, list)
	}

	request.List = lists[0]
	images, again, err := extractor.FromMemory(ctx, request)
	if err != nil {
		return err
	}

	memory := &contestant{what: "features from memory", slow: true, run: func(ctx context.Context) error {
		return again(ctx, 2*calls)
	}}
	all, rates := []*contestant{memory}, make([]features.Rates, len(lists))
	for i, list := range lists {
		extractor.Rates, request.List = &rates[i], list[:calls*images]
		all = append(all, &contestant{what: "features from JPEG files", slow: true, run: computing(extractor, request)})
	}

	rounds := featureRounds
	if o.Quick {
		rounds = 3
	}

	if err := o.interleave(ctx, "features of "+name+", "+precision, rounds, 1, all...); err != nil {
		return err
	}

	row := []any{name, precision, images, tenths(float64(2*calls*images) / median(memory.seconds))}
	for i, c := range all[1:] {
		row = append(row, tenths(float64(calls*images)/median(c.seconds)),
			tenths(float64(rates[i].Images)/rates[i].Decoding.Seconds()))
	}

	results.add(row...)
	return nil
}

func computing(x features.Extractor, r features.Request) func(context.Context) error {
	return func(ctx context.Context) error {
		_, err := x.Compute(ctx, r)
		return err
	}
}

// pictures writes JPEG files of one size, waves under noise, and returns a long list of them.
func pictures(dir string, width, height int) ([]data.Example, error) {
	const files, list = 32, 1024
	var paths []string
	for i := range files {
		rng := method.Rand(seed, "picture", strconv.Itoa(i))
		img := image.NewRGBA(image.Rect(0, 0, width, height))
		for at := 0; at < len(img.Pix); at += 4 {
			x, y := float64(at/4%width), float64(at/4/width)
			wave := 100*math.Sin(x/float64(7+i)) + 100*math.Cos(y/float64(9+i))
			for c := range 3 {
				img.Pix[at+c] = byte(max(0, min(255, 128+wave/float64(1+c)+12*rng.NormFloat64())))
			}
			img.Pix[at+3] = 255
		}

		paths = append(paths, filepath.Join(dir, fmt.Sprintf("%dx%d-%02d.jpg", width, height, i)))
		encode := func(w io.Writer) error { return jpeg.Encode(w, img, &jpeg.Options{Quality: 90}) }
		if err := atomicfile.WriteUnsynced(paths[i], encode); err != nil {
			return nil, err
		}
	}

	return data.Files(slices.Repeat(paths, list/files))
}

// pixelsThrough returns runs of so many images through an image tower.
func pixelsThrough(v clip.Vision, w clip.Weights, images int, o ort.Options) (*products, error) {
	g := features.GraphFor(o)
	image, _ := v.Features(g, w, bundle.AddPixelsInput(g, 0, v.Image))
	return compile("image tower", image, drawPixels(v, images), float64(images)*v.FLOPs(0, false), o)
}

// drawPixels returns random pixels of so many images.
func drawPixels(v clip.Vision, images int) tensor.Map {
	return tensor.Map{bundle.PixelsInput: method.Draw(seed, 0, "pixels", []int{images, 3, v.Image, v.Image}, 1)}
}

func (m *Measurement) imageTower(ctx context.Context, name string, vision clip.Vision, threads int, results *Table) (
	ofGEMM float64, err error) {
	dir, w := filepath.Join(m.dir, name), stored{}
	if err := w.draw(dir, "image.safetensors", vision.Shapes(), vision.Width, vision.Layers); err != nil {
		return 0, err
	}

	profile, session := filepath.Join(dir, "profile"), m.session(1)
	session.WeightsDir, session.Profile = dir, profile
	var open opened
	many := open.products(pixelsThrough(vision, w, features.BatchOnCPU, session))
	square := open.products(squareProduct(m.session(threads)))
	tower := &contestant{what: name, slow: true, run: parallel(threads, threads, many.run),
		flops: float64(threads) * many.flops}
	if err = open.err; err == nil {
		err = m.interleave(ctx, "features of "+name, featureRounds, 5, tower, &square.contestant)
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
	results.add(name, tenths(float64(threads*features.BatchOnCPU)/median(tower.seconds)),
		tenths(vision.FLOPs(0, false)/1e9), tenths(tower.rate()), percent(ofGEMM), percent(100*multiplying/all))
	return ofGEMM, nil
}

package samples

import (
	"bytes"
	"cmp"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"image"
	"image/png"
	"path/filepath"
	"slices"

	"golang.org/x/image/draw"

	"promptfed/configs"
	"promptfed/federation/data"
	"promptfed/federation/experiment"
	"promptfed/federation/experiment/inference"
	"promptfed/federation/method"
	"promptfed/models/preprocess"
	"promptfed/tools/lab/results"
	"promptfed/tools/promptfed/runfolder"
)

// Limits.
const (
	maxTested = 96  // classified images of a client
	maxShown  = 24  // images with a right prediction, and with a wrong one
	maxSide   = 160 // pixels of a shown image
)

// Samples are test images of one client with their predictions.
type Samples struct {
	View    string   `json:"view"`   // evaluation: global or personal
	Of      int      `json:"of"`     // test images of the client
	Tested  int      `json:"tested"` // classified ones among them, at equal distances
	Correct int      `json:"correct"`
	Images  []Sample `json:"images"` // wrong ones first, the surest first; then right ones, the least sure first
}

// Sample is a test image with its prediction.
type Sample struct {
	Class       string  `json:"class"`
	Predicted   string  `json:"predicted"`
	Probability float32 `json:"probability"` // of the predicted class
	Source      string  `json:"source"`      // the image as a data URI
	example     data.Example
}

// Of classifies test images of a client of a finished run with one of its evaluations; "" is that of the run's results.
// The images come from the data set that the configuration names. An error says why they cannot be shown.
func Of(ctx context.Context, run results.Run, client int, view string) (*Samples, error) {
	global, personal := method.GlobalView.String(), method.PersonalView.String()
	if view = cmp.Or(view, run.View, global); view != global && view != personal {
		return nil, fmt.Errorf("evaluation %q: expected %s or %s", view, global, personal)
	}

	conf, err := configs.LoadRun(filepath.Join(run.Dir, runfolder.ConfigFile), nil)
	if err != nil {
		return nil, err
	}

	test, classes, err := testImages(ctx, run.Dir, conf, client)
	if err != nil {
		return nil, err
	}

	classifier, err := inference.Open(conf, run.Dir, inference.Choice{Client: client, Global: view == global})
	if err != nil {
		return nil, err
	}
	defer classifier.Close()

	if !slices.Equal(classifier.Classes(), classes) {
		return nil, errors.New("the data set has other classes than the run")
	}

	out := &Samples{View: view, Of: len(test), Tested: min(len(test), maxTested)}
	chosen := make([]data.Example, out.Tested)
	for i := range chosen {
		chosen[i] = test[i*len(test)/len(chosen)]
	}

	list, err := classifier.Predict(ctx, chosen)
	if err != nil {
		return nil, err
	}

	var wrong, right []Sample
	for i, p := range list {
		best, e := p.Ranked()[0], chosen[i]
		s := Sample{classes[e.Label], classes[best], p.Probabilities[best], "", e}
		if best == e.Label {
			right = append(right, s)
		} else {
			wrong = append(wrong, s)
		}
	}

	out.Correct = len(right)
	slices.SortStableFunc(wrong, func(a, b Sample) int { return cmp.Compare(b.Probability, a.Probability) })
	slices.SortStableFunc(right, func(a, b Sample) int { return cmp.Compare(a.Probability, b.Probability) })
	out.Images = slices.Concat(wrong[:min(len(wrong), maxShown)], right[:min(len(right), maxShown)])
	for i := range out.Images {
		if err := out.Images[i].read(); err != nil {
			return nil, err
		}
	}

	return out, nil
}

// testImages returns the test images of a client, with the labels that the run used, and the classes. It refuses images
// that are not those of the run.
func testImages(ctx context.Context, dir string, conf experiment.Config, client int) (test []data.Example,
	classes []string, err error) {
	provenance, err := runfolder.ReadProvenance(dir)
	if err != nil {
		return nil, nil, err
	}

	if provenance.Data == nil {
		return nil, nil, errors.New("the images of this run are on the machines of its clients")
	}

	conf.Data.Root = cmp.Or(provenance.Data.Root, conf.Data.Root)
	conf.Eval.Sets = nil // not needed, and perhaps relative to another folder
	content, err := experiment.OpenData(ctx, conf, nil)
	if err != nil {
		return nil, nil, fmt.Errorf("the images of this run cannot be read here: %w", err)
	}

	if provenance.Data.Digest != content.Digest {
		return nil, nil, fmt.Errorf("the images of this run are no longer here: %s has others (digest %.12s, the "+
			"run's is %.12s)", cmp.Or(conf.Data.Root, conf.Data.Set), content.Digest, provenance.Data.Digest)
	}

	if client < 0 || client >= len(content.Parts) {
		return nil, nil, fmt.Errorf("client %d does not exist: the run has clients 0 to %d", client,
			len(content.Parts)-1)
	}

	_, _, test = content.Parts[client].Of(content.Set)
	if len(test) == 0 {
		return nil, nil, fmt.Errorf("client %d has no test images", client)
	}

	return test, content.Set.Classes, nil
}

// read reads the image and scales it to at most maxSide pixels a side.
func (s *Sample) read() error {
	img, err := s.example.Image(preprocess.Decode)
	if err != nil {
		return err
	}

	from := img.Bounds()
	w, h := from.Dx(), from.Dy()
	if side := max(w, h); side > maxSide {
		w, h = max(1, w*maxSide/side), max(1, h*maxSide/side)
	}

	small := image.NewRGBA(image.Rect(0, 0, w, h))
	draw.BiLinear.Scale(small, small.Bounds(), img, from, draw.Src, nil)
	var b bytes.Buffer
	err = png.Encode(&b, small)
	s.Source = "data:image/png;base64," + base64.StdEncoding.EncodeToString(b.Bytes())
	return err
}

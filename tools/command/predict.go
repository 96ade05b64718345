package command

import (
	"cmp"
	"encoding/csv"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"promptfed/configs"
	"promptfed/federation/data"
	"promptfed/federation/experiment"
	"promptfed/federation/experiment/trained"
	"promptfed/federation/sets/source"
	"promptfed/tools/progress"
	"promptfed/tools/report/results"
)

func predictCommand() *cobra.Command {
	client, top, asJSON, asCSV := 0, 3, false, false
	var models string
	var sets []string
	c := &cobra.Command{Use: "predict RUN|FILE.onnx [--client K] IMAGE|FOLDER...", Args: atLeast(2),
		Short: "classify images with what a client learned, or with an exported classifier"}
	c.Flags().IntVar(&client, "client", 0, clientHelp)
	c.Flags().IntVar(&top, "top", top, "classes to show for each image")
	c.Flags().BoolVar(&asJSON, "json", false, "print one JSON object per image with every probability")
	c.Flags().BoolVar(&asCSV, "csv", false, "print a table: a line for each image with its best class and every "+
		"probability")
	c.Flags().StringVar(&models, "models", "", "folder with bundles by name")
	c.Flags().StringArrayVar(&sets, "set", nil, "change a runtime key of the run, as in runtime.provider=cpu")
	c.RunE = func(cmd *cobra.Command, args []string) error {
		if asJSON && asCSV {
			return usageError{errors.New("--json and --csv are two forms: give one")}
		}
		if top < 1 {
			return usageError{fmt.Errorf("--top %d: take 1 or more", top)}
		}
		paths, err := imagesIn(args[1:])
		if err != nil {
			return usageError{err}
		}
		images, err := data.Files(paths)
		if err != nil {
			return err
		}
		classes, list, err := predict(cmd, args[0], models, sets, client, images)
		if err != nil {
			return err
		}
		if asCSV {
			return writePredictions(os.Stdout, classes, list)
		}
		out := json.NewEncoder(os.Stdout)
		for _, p := range list {
			if asJSON {
				prob := map[string]float32{}
				for i, c := range classes {
					prob[c] = p.Probabilities[i]
				}
				if err := out.Encode(map[string]any{"image": p.Image, "probabilities": prob}); err != nil {
					return err
				}
				continue
			}
			fmt.Print(p.Image, ":")
			for _, i := range ranked(p)[:min(top, len(classes))] {
				fmt.Printf("  %s %.1f %%", classes[i], 100*p.Probabilities[i])
			}
			fmt.Println()
		}
		return nil
	}
	return c
}

const clientHelp = "number of the client, from 0; what each learned differs"

// ranked are the classes of a prediction, the most probable first.
func ranked(p trained.Prediction) []int {
	order := make([]int, len(p.Probabilities))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(p.Probabilities[b], p.Probabilities[a]) })
	return order
}

// writePredictions writes a line for each image: its name, the best class, and the probability of every class.
func writePredictions(w io.Writer, classes []string, list []trained.Prediction) error {
	out := csv.NewWriter(w)
	out.Write(append([]string{"image", "class"}, classes...))
	for _, p := range list {
		row := []string{p.Image, classes[ranked(p)[0]]}
		for _, v := range p.Probabilities {
			row = append(row, strconv.FormatFloat(float64(v), 'g', -1, 32))
		}
		out.Write(row)
	}
	out.Flush()
	return out.Error()
}

// imagesIn puts the images in and below each folder in its place, by name.
func imagesIn(paths []string) ([]string, error) {
	var out []string
	for _, p := range paths {
		if st, err := os.Stat(p); err != nil || !st.IsDir() {
			out = append(out, p)
			continue
		}
		n := len(out)
		err := filepath.WalkDir(p, func(path string, e fs.DirEntry, err error) error {
			if err == nil && !e.IsDir() && slices.Contains(source.Extensions, strings.ToLower(filepath.Ext(path))) {
				out = append(out, path)
			}
			return err
		})
		if err == nil && len(out) == n {
			err = fmt.Errorf("%s has no images in it", p)
		}
		if err != nil {
			return nil, err
		}
	}
	return out, nil
}

// predict classifies images with a client of a run, or with an exported classifier.
func predict(cmd *cobra.Command, from, models string, sets []string, client int, images []data.Example) ([]string,
	[]trained.Prediction, error) {
	if st, err := os.Stat(from); err == nil && st.Mode().IsRegular() {
		for _, flag := range []string{"client", "models"} {
			if cmd.Flags().Changed(flag) {
				return nil, nil, usageError{fmt.Errorf("--%s goes with a run folder, %s is a file", flag, from)}
			}
		}
		conf, err := bare(sets)
		if err == nil {
			err = chooseProvider(&conf, progress.New(conf))
		}
		if err != nil {
			return nil, nil, err
		}
		return trained.PredictFile(cmd.Context(), from, images, conf.Runtime.Session())
	}
	conf, err := openRun(from, models, sets)
	if err == nil {
		err = clientNamed(cmd)
	}
	if err != nil {
		return nil, nil, err
	}
	return trained.Predict(cmd.Context(), conf, from, client, images)
}

// clientNamed refuses to choose a client of a run: two of them may answer otherwise for one image.
func clientNamed(c *cobra.Command) error {
	if !c.Flags().Changed("client") {
		return needed(c.Name(), "--client K, as in --client 0: what the clients of a run learned differs")
	}
	return nil
}

// openRun reads the configuration of a finished run, changed by sets, and takes the provider; models, unless empty, is
// another folder with bundles.
func openRun(dir, models string, sets []string) (experiment.Config, error) {
	if err := onlyRuntime(sets); err != nil {
		return experiment.Config{}, err
	}
	conf, err := configs.Load(filepath.Join(dir, results.ConfigFile), sets)
	if err != nil {
		return conf, usageError{fmt.Errorf("%w; is %s a run folder?", err, dir)}
	}
	if err := conf.Check(); err != nil {
		return conf, usageError{err}
	}
	if models != "" {
		conf.Runtime.Models = models
	}
	return conf, chooseProvider(&conf, progress.New(conf))
}

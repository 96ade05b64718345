package command

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"github.com/spf13/cobra"

	"promptfed/configs"
	"promptfed/federation/data"
	"promptfed/federation/experiment"
	"promptfed/federation/experiment/trained"
	"promptfed/tools/progress"
	"promptfed/tools/report/results"
)

func predictCommand() *cobra.Command {
	client, top, asJSON := 0, 3, false
	var models string
	var sets []string
	c := &cobra.Command{Use: "predict RUN|FILE.onnx --client K IMAGE...", Args: atLeast(2),
		Short: "classify images with what a client learned, or with an exported classifier"}
	c.Flags().IntVar(&client, "client", 0, "number of the client, from 0")
	c.Flags().IntVar(&top, "top", top, "classes to show for each image")
	c.Flags().BoolVar(&asJSON, "json", false, "print one JSON object per image with every probability")
	c.Flags().StringVar(&models, "models", "", "folder with bundles by name")
	c.Flags().StringArrayVar(&sets, "set", nil, "change a runtime key of the run, as in runtime.provider=cpu")
	c.RunE = func(cmd *cobra.Command, args []string) error {
		images, err := data.Files(args[1:])
		if err != nil {
			return err
		}
		classes, list, err := predict(cmd, args[0], models, sets, client, images)
		if err != nil {
			return err
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
			order := make([]int, len(classes))
			for i := range order {
				order[i] = i
			}
			slices.SortStableFunc(order, func(a, b int) int {
				if p.Probabilities[a] > p.Probabilities[b] {
					return -1
				} else if p.Probabilities[a] < p.Probabilities[b] {
					return 1
				}
				return 0
			})
			fmt.Print(p.Image, ":")
			for _, i := range order[:min(max(1, top), len(order))] {
				fmt.Printf("  %s %.1f %%", classes[i], 100*p.Probabilities[i])
			}
			fmt.Println()
		}
		return nil
	}
	return c
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
	if err != nil {
		return nil, nil, err
	}
	return trained.Predict(cmd.Context(), conf, from, client, images)
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

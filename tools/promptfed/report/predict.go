package report

import (
	"cmp"
	"context"
	"encoding/csv"
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
	"promptfed/federation/data/sets/source"
	"promptfed/federation/experiment"
	"promptfed/federation/experiment/inference"
	"promptfed/models/preprocess"
	"promptfed/tools/lab/tables"
	"promptfed/tools/promptfed/cli"
	"promptfed/tools/promptfed/progress"
	"promptfed/tools/promptfed/runfolder"
	"promptfed/tools/promptfed/serving"
)

func predictCommand() *cobra.Command {
	var from chosen
	top, about, listen, asCSV := 3, false, "", false
	command := &cobra.Command{Use: "predict RUN|FILE.onnx [--client K] [--global] IMAGE|FOLDER...",
		Args:  cli.AtLeast(1),
		Short: "classify images with the classifier of a client, the global one, or an exported one"}
	from.flags(command)
	command.Flags().IntVar(&top, "top", top, "number of classes to show for each image")
	result := cli.AddShapes(command, cli.Shape{Value: serving.Prediction{}, Lines: true}, cli.Shape{When: "--about",
		Value: map[string]any{}})
	command.Flags().BoolVar(&asCSV, "csv", false, "print CSV: a line for each image with its best class and every "+
		"probability")
	command.Flags().BoolVar(&about, "about", false, "print the metadata of an exported classifier, such as its "+
		"accuracy; images are optional")
	command.Flags().StringVar(&listen, "listen", "", "HOST:PORT: serve an exported classifier over HTTP, for images "+
		"in POST requests; HOST is 127.0.0.1 if left out")
	command.RunE = func(cmd *cobra.Command, args []string) error {
		if result.JSON && asCSV {
			return cli.Usagef("--json and --csv: give only one of them")
		}

		if top < 1 {
			return cli.Usagef("--top %d: expected 1 or more", top)
		}

		switch n := len(args) - 1; {
		case listen != "" && result.JSON:
			return cli.Usagef("--listen answers with JSON anyway: leave out --json")
		case listen != "" && n > 0:
			return cli.Usagef("--listen takes no images: send them in POST requests")
		case listen != "" && source.IsFolder(args[0]):
			return cli.Usagef("--listen needs an exported file, which promptfed export RUN writes")
		case listen == "" && !about && n == 0:
			return cli.Needed("predict", "IMAGE|FOLDER..., --about or --listen")
		}

		paths, err := imagesIn(args[1:])
		if err != nil {
			return cli.Usage(err)
		}

		images, err := data.Files(paths)
		if err != nil {
			return err
		}

		classifier, err := from.open(cmd, args[0])
		if err != nil {
			return err
		}
		defer classifier.Close()

		if about {
			facts, err := classifier.About()
			if err != nil {
				return err
			}
			rows := [][]string{{"what", "value"}}
			for _, f := range facts {
				rows = append(rows, []string{f.Key, f.Value})
			}
			if err := result.Print(serving.Metadata(facts), tables.PlainText(rows, 2)); err != nil {
				return err
			}
		}

		if file, ok := classifier.(*inference.File); ok && listen != "" {
			return serving.Listen(cmd.Context(), listen, file)
		}

		list, unread, err := predict(cmd.Context(), classifier, images)
		if err != nil || len(list) == 0 {
			return cmp.Or(err, unread)
		}

		classes := classifier.Classes()
		if asCSV {
			return cmp.Or(writePredictions(os.Stdout, classes, list), unread)
		}

		for _, p := range list {
			text := p.Image + ":"
			for _, i := range p.Ranked()[:min(top, len(classes))] {
				text += fmt.Sprintf("  %s %.1f %%", classes[i], 100*p.Probabilities[i])
			}
			if err := result.Print(serving.NewPrediction(p, classes), text+"\n"); err != nil {
				return err
			}
		}

		return unread
	}

	return command
}

// predict classifies the images that can be read. unread is an error that names the others.
func predict(ctx context.Context, classifier classifier, images []data.Example) (list []inference.Prediction, unread,
	err error) {
	list, err = classifier.Predict(ctx, images)
	if first := (*data.BadImage)(nil); !errors.As(err, &first) {
		return list, nil, err
	}

	set := data.Set{Test: images}
	if err := set.DropUnreadable(ctx, 1, preprocess.Decode, nil); err != nil {
		return nil, nil, err
	}

	var names []string
	for _, bad := range set.Skipped {
		names = append(names, fmt.Sprintf("%s (%s)", bad.Name, bad.Reason))
	}

	unread = fmt.Errorf("%d of %d images cannot be read: %s", len(names), len(images), strings.Join(names, ", "))
	if len(set.Test) > 0 {
		list, err = classifier.Predict(ctx, set.Test)
		return list, unread, err
	}

	return nil, unread, nil
}

// writePredictions writes a line for each image: its name, its most probable class, and all probabilities.
func writePredictions(w io.Writer, classes []string, list []inference.Prediction) error {
	out := csv.NewWriter(w)
	out.Write(append([]string{"image", "class"}, classes...))
	for _, p := range list {
		row := []string{p.Image, classes[p.Ranked()[0]]}
		for _, v := range p.Probabilities {
			row = append(row, strconv.FormatFloat(float64(v), 'g', -1, 32))
		}
		out.Write(row)
	}

	out.Flush()
	return out.Error()
}

// imagesIn replaces each folder by the images in and below it, sorted by name.
func imagesIn(paths []string) ([]string, error) {
	var out []string
	for _, given := range paths {
		if st, err := os.Stat(given); err != nil || !st.IsDir() {
			out = append(out, given)
			continue
		}

		n := len(out)
		err := filepath.WalkDir(given, func(path string, e fs.DirEntry, err error) error {
			if err == nil && !e.IsDir() && slices.Contains(source.Extensions, strings.ToLower(filepath.Ext(path))) {
				out = append(out, path)
			}
			return err
		})

		if err == nil && len(out) == n {
			err = fmt.Errorf("%s has no images in it", given)
		}

		if err != nil {
			return nil, err
		}
	}

	return out, nil
}

// classifier is a classifier of a run folder or an exported file.
type classifier interface {
	Classes() []string
	Predict(context.Context, []data.Example) ([]inference.Prediction, error)
	About() ([]inference.Fact, error)
	Close() error
}

// chosen holds the flags that choose a classifier of a run.
type chosen struct {
	client int
	global bool
	sets   []string
}

func (f *chosen) flags(c *cobra.Command) {
	c.Flags().IntVar(&f.client, "client", 0, "use the classifier of client K, from 0, as tested by the run's "+
		"personal evaluation")
	c.Flags().BoolVar(&f.global, "global", false, "use the server's parameters, as tested by the run's global "+
		"evaluation; with --client K, on that client's backbone and with its private parameters")
	c.Flags().StringArrayVar(&f.sets, "set", nil, "change a runtime key of the run, as in runtime.provider=cpu")
}

// open opens a classifier of a run folder, or an exported file. With an error the classifier is undefined.
func (f *chosen) open(cmd *cobra.Command, from string) (classifier, error) {
	if st, err := os.Stat(from); err == nil && st.Mode().IsRegular() {
		for _, flag := range []string{"client", "global"} {
			if cmd.Flags().Changed(flag) {
				return nil, cli.Usagef("--%s needs a run folder, %s is a file", flag, from)
			}
		}

		conf, err := cli.RuntimeOnly(f.sets)
		if err == nil {
			err = cli.ChooseProvider(&conf, progress.New(conf))
		}

		if err != nil {
			return nil, err
		}

		return inference.OpenFile(from, conf.Runtime.Session())
	}

	return f.openRun(cmd, from)
}

// openRun opens a classifier of a run folder. There is no default: two classifiers of a run may classify the same image
// differently.
func (f *chosen) openRun(cmd *cobra.Command, dir string) (*inference.Classifier, error) {
	conf, err := openRun(dir, f.sets)
	if err != nil {
		return nil, err
	}

	choice := inference.Choice{Client: f.client, Global: f.global}
	if !cmd.Flags().Changed("client") {
		if choice.Client = -1; !f.global {
			return nil, cli.Needed(cmd.Name(), "--client K, as in --client 0, or --global: each client learned its "+
				"own classifier")
		}
	}

	classifier, err := inference.Open(conf, dir, choice)
	if err == nil {
		classifier.Data, err = dataOf(dir)
	}

	return classifier, err
}

// dataOf returns the data set that a run folder names.
func dataOf(dir string) (inference.DataSet, error) {
	p, err := runfolder.ReadProvenance(dir)
	if err != nil || p.Data == nil {
		return inference.DataSet{}, err
	}
	return inference.DataSet{Name: p.Data.Set, Digest: p.Data.Digest}, nil
}

// openRun reads the configuration of a finished run, applies the changes in sets, and chooses the provider.
func openRun(dir string, sets []string) (experiment.Config, error) {
	if err := cli.OnlyRuntime(sets); err != nil {
		return experiment.Config{}, err
	}

	conf, err := configs.LoadRun(filepath.Join(dir, runfolder.ConfigFile), sets)
	if plan, e := configs.ReadPlan(dir); err != nil && e == nil && len(plan.Cells) > 0 {
		return conf, cli.Usagef("%s holds a sweep; name one of its runs, such as %s", dir,
			filepath.Join(dir, filepath.FromSlash(plan.Cells[0].Folder)))
	}

	if err != nil {
		return conf, cli.Usagef("%w; %s must be a run folder", err, dir)
	}

	if err := conf.CheckWithoutData(); err != nil {
		return conf, cli.Usage(err)
	}

	return conf, cli.ChooseProvider(&conf, progress.New(conf))
}

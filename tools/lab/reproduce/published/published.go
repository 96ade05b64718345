package published

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"

	_ "promptfed/models/bundle/converted"
	_ "promptfed/models/bundle/exported"
)

// resultFile is the file that can be sent in, in the folder of the runs.
const resultFile = "reproduced.json"

// files are the sweeps of zero-shot accuracies and of one table of each paper.
var files = []string{"configs/reproduce/zero-shot.yaml", "configs/papers/*/table-1.yaml"}

type options struct {
	data, models, out, program, seeds string
	smoke                             bool
	set                               []string // as given
	files                             []string
}

// sets returns the changes of every table.
func (o options) sets() []string {
	if o.data == "" || o.smoke {
		return o.set
	}
	return append(slices.Clone(o.set), "data.root="+o.data)
}

// Main runs reproduce with the arguments of the process, and exits if it fails.
func Main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, os.Args[1:], os.Stdout); err != nil && !errors.Is(err, flag.ErrHelp) {
		fmt.Fprintln(os.Stderr, "reproduce:", err)
		os.Exit(1)
	}
}

func parse(args []string) (options options, err error) {
	options.set = []string{}
	flags := flag.NewFlagSet("reproduce", flag.ContinueOnError)
	flags.StringVar(&options.data, "data", os.Getenv("PROMPTFED_DATA_ROOT"), "folder with the image sets (data.root)")
	flags.StringVar(&options.models, "models", "",
		"folder with bundles called rn50, rn101, vit-b32 and vit-b16; others are those of promptfed pull")
	flags.StringVar(&options.out, "out", "runs/reproduce", "folder of the runs; finished ones are not repeated")
	flags.StringVar(&options.program, "program", "bin/promptfed", "the program")
	flags.StringVar(&options.seeds, "seeds", "", "seeds in place of those of the tables, as in 1,2")
	flags.BoolVar(&options.smoke, "smoke", false,
		"run the small form of every table, on synthetic images and tiny backbones")
	flags.Func("set", "key=value in every table", func(s string) error {
		options.set = append(options.set, s)
		return nil
	})
	if err = flags.Parse(args); err != nil {
		return options, err
	}

	patterns := files
	if flags.NArg() > 0 {
		patterns = flags.Args()
	}

	for _, p := range patterns {
		found, err := filepath.Glob(p)
		if err != nil || len(found) == 0 {
			return options, fmt.Errorf("%s: no such file: run this in the folder of the repository", p)
		}
		options.files = append(options.files, found...)
	}

	return options, nil
}

func run(ctx context.Context, args []string, w io.Writer) error {
	options, err := parse(args)
	if err != nil {
		return err
	}

	links, err := os.MkdirTemp("", "promptfed-reproduce-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(links)

	stock, err := newStock(options, links)
	if err != nil {
		return err
	}

	var all, failed []string // folders of finished sweeps
	var tables []table
	for _, path := range options.files {
		t, err := stock.open(path)
		if err != nil {
			return err
		}
		tables = append(tables, t)
	}

	stock.print(w, tables)
	for _, t := range tables {
		if t.sweep == nil {
			continue
		}
		dir := filepath.Join(options.out, t.sweep.Name)
		if err := sweep(ctx, options, t, dir); ctx.Err() != nil {
			return fmt.Errorf("interrupted; the same command continues")
		} else if err != nil {
			failed = append(failed, fmt.Sprintf("%s: %v", t.path, err))
		}
		if _, err := os.Stat(filepath.Join(dir, "sweep.json")); err == nil {
			all = append(all, dir)
		}
	}

	if len(all) > 0 {
		if err := stock.write(w, all, tables); err != nil {
			return err
		}
	}

	if len(failed) > 0 {
		return fmt.Errorf("%d tables are not complete: %s", len(failed), strings.Join(failed, "; "))
	}

	return nil
}

// sweep runs the cells of a table that are not finished.
func sweep(ctx context.Context, options options, t table, dir string) error {
	args := []string{"sweep", t.path, "--out", dir}
	for _, s := range options.sets() {
		args = append(args, "--set", s)
	}

	for _, a := range t.sweep.Axes {
		if keep := t.keep[a.Name]; keep != nil {
			args = append(args, "--keep", a.Name+"="+strings.Join(keep, ","))
		}
	}

	if options.seeds != "" {
		args = append(args, "--seeds", options.seeds)
	}

	if options.smoke {
		args = append(args, "--smoke")
	}

	if _, err := os.Stat(filepath.Join(dir, "sweep.json")); err == nil {
		args = append(args, "--resume")
	}

	c := exec.CommandContext(ctx, options.program, args...)
	c.Cancel = func() error { return c.Process.Signal(os.Interrupt) } // the sweep keeps finished rounds
	c.Stdout, c.Stderr = os.Stdout, os.Stderr
	return c.Run()
}

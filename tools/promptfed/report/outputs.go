package report

import (
	"context"

	"promptfed/configs"
	"promptfed/federation/experiment"
	"promptfed/federation/methods"
	"promptfed/tools/lab/report"
	"promptfed/tools/lab/trackers"
	"promptfed/tools/promptfed/cli"
)

// Outputs returns the reports and the experiment trackers of tools/lab, for the commands that train.
func Outputs() cli.Outputs {
	return cli.Outputs{
		Report: func(dirs []string, out string) (cli.Report, error) {
			return write(context.Background(), dirs, out, report.Standard())
		},
		TrackerHelp:   trackers.Help,
		CheckTrackers: trackers.Check,
		OpenTrackers:  openTrackers,
	}
}

func openTrackers(names []string, dir string, t *experiment.Task, warn func(string)) (cli.Tracker, error) {
	conf := t.Protocol.Config
	text, err := configs.YAML(conf)
	if err != nil {
		return nil, err
	}
	return trackers.Open(names, trackers.Run{Dir: dir, Name: conf.Name, Seed: conf.Seed, Config: text,
		Method: methods.Called(conf.Method, conf.Options), Digest: t.Data.Digest}, warn)
}

package run

import (
	"fmt"

	"github.com/spf13/cobra"

	"promptfed/tools/promptfed/cli"
	"promptfed/tools/promptfed/quickstart"
)

// chosen is what init found and chose.
type chosen struct {
	File      string         `json:"file"`
	Name      string         `json:"name"`
	Set       string         `json:"set"`    // data.set
	Layout    string         `json:"layout"` // in words
	Classes   []string       `json:"classes"`
	Domains   []string       `json:"domains"`
	Images    map[string]int `json:"images" key:"SPLIT"`
	Partition struct {
		Kind    string  `json:"kind"`
		Clients int     `json:"clients"`
		Beta    float64 `json:"beta"`
	} `json:"partition"`
}

func chosenBy(p *quickstart.Plan, file string) chosen {
	out := chosen{File: file, Name: p.Name, Set: p.Kind, Layout: p.Images.Layout, Classes: p.Images.Classes,
		Domains: p.Images.Domains, Images: map[string]int{}}
	for _, split := range p.Images.Splits() {
		out.Images[split.Name] = len(*split.Examples)
	}

	out.Partition.Kind, out.Partition.Clients, out.Partition.Beta = p.Partition.Kind, p.Partition.Clients,
		p.Partition.Beta
	return out
}

func initCommand() *cobra.Command {
	var out string
	var sets []string
	var force bool
	command := &cobra.Command{Use: "init FOLDER [--out FILE] [--set key=value] [--force]", Args: cli.Exactly(1),
		Short: "write a commented configuration for a folder of images: layout detected, partition chosen"}
	flagSet := command.Flags()
	flagSet.StringVar(&out, "out", "", "file to write (default NAME.yaml)")
	flagSet.StringArrayVar(&sets, "set", nil, "change a key that the choice depends on, as in data.layout=domains "+
		"or method=fedpha; the file has the method with its options, data.layout, data.corrupt and partition")
	flagSet.BoolVar(&force, "force", false, "overwrite an existing file")
	result := cli.AddJSON(command, chosen{})

	command.RunE = func(_ *cobra.Command, args []string) error {
		p, err := plan(args[0], sets)
		if err != nil {
			return err
		}
		if out == "" {
			out = p.Name + ".yaml"
		}
		if err := cli.WriteNew(out, p.Text, force); err != nil {
			return err
		}
		return result.Print(chosenBy(p, out), fmt.Sprintf("written to %s; promptfed run %s trains\n", out, out))
	}

	return command
}

package inspect

import (
	"fmt"
	"os"
	"time"

	"github.com/schollz/progressbar/v3"
	"github.com/spf13/cobra"

	"promptfed/configs"
	"promptfed/tools/lab/pretrain"
	"promptfed/tools/promptfed/cli"
	"promptfed/tools/promptfed/progress"
)

// pretrained is a trained backbone.
type pretrained struct {
	Name       string              `json:"name"`
	Folder     string              `json:"folder"`
	Parameters int                 `json:"parameters"`
	Loss       float64             `json:"loss"` // mean over the last steps
	Seconds    float64             `json:"seconds"`
	ZeroShot   []pretrain.Accuracy `json:"zero_shot"`
}

func pretrainCommand() *cobra.Command {
	var sets []string
	command := &cobra.Command{Use: "pretrain CONFIG", Args: cli.Exactly(1),
		Short: "train a tiny backbone from scratch; " +
			"continues where it stopped"}
	command.Flags().StringArrayVar(&sets, "set", nil, cli.SetHelp)
	result := cli.AddJSON(command, pretrained{})
	command.RunE = func(cmd *cobra.Command, args []string) error {
		conf := pretrain.Defaults()
		if err := configs.DecodeFile(&conf, args[0], sets); err != nil {
			return cli.Usage(err)
		}

		if err := conf.Validate(); err != nil {
			return cli.Usagef("%s: %w", args[0], err)
		}

		bar := progress.Bar(conf.Train.Steps, progressbar.OptionShowCount())
		trained, err := pretrain.Run(cmd.Context(), conf, func(p pretrain.Progress) {
			if bar != nil {
				bar.Describe(fmt.Sprintf("%s loss %.3f", conf.Name, p.Loss))
				bar.Set(p.Step)
				return
			}
			if p.Step%50 == 0 || p.Step == conf.Train.Steps {
				fmt.Fprintf(os.Stderr, "%s: step %d/%d, loss %.4f, %s\n", conf.Name, p.Step, p.Steps, p.Loss,
					p.Elapsed.Round(time.Second))
			}
		})

		if bar != nil {
			bar.Finish()
		}

		if err != nil {
			return err
		}

		rows := [][]string{{"set", "domain", "classes", "images", "zero-shot %"}}
		for _, s := range trained.Accuracy {
			rows = append(rows, []string{s.Set, s.Domain, fmt.Sprint(s.Classes), fmt.Sprint(s.Images),
				fmt.Sprintf("%.2f", 100*s.Correct)})
		}

		return result.Print(pretrained{conf.Name, conf.Out, trained.Parameters, trained.Loss, trained.Elapsed.Seconds(),
			trained.Accuracy}, align(rows)+"written to "+conf.Out+"\n")
	}

	return command
}

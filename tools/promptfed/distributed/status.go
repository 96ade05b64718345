package distributed

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/spf13/cobra"

	"promptfed/federation/experiment/facts"
	"promptfed/federation/net/certs"
	netclient "promptfed/federation/net/client"
	"promptfed/federation/net/wait"
	"promptfed/federation/net/wire"
	"promptfed/tools/promptfed/cli"
)

func statusCommand() *cobra.Command {
	var access cli.Access
	command := &cobra.Command{Use: "status URL [--tls DIR] [--token SECRET]", Args: oneURL,
		Short: "show the state of a run of promptfed serve: clients, rounds and bytes; updated live on a terminal"}
	result := cli.AddJSON(command, wire.Status{})
	access.Add(command, "the server's secret", "folder with ca.pem, status.pem and status-key.pem, as promptfed certs "+
		"makes it")
	command.RunE = func(cmd *cobra.Command, args []string) error {
		server, err := link(access, args[0], certs.StatusUser, "", slog.New(slog.DiscardHandler))
		if err != nil {
			return err
		}
		defer server.Close()

		live := onTerminal(os.Stdout) && !result.JSON
		for {
			status, err := fetchStatus(cmd.Context(), server)
			if err != nil {
				return err
			}

			status.Round++ // counted from 1
			text := statusTable(status) + "\n"
			if live {
				text = "\033[H\033[2J" + text
			}

			if err := result.Print(*status, text); err != nil {
				return err
			}

			if !live || wait.For(cmd.Context(), time.Second) != nil {
				return nil
			}
		}
	}

	return command
}

func fetchStatus(ctx context.Context, server *netclient.Link) (*wire.Status, error) {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	return server.FetchStatus(ctx)
}

// statusTable returns a table of a run, with a row for each client.
func statusTable(status *wire.Status) string {
	writer := table.NewWriter()
	writer.SetStyle(table.StyleLight)
	doing := "no instruction"
	switch {
	case status.SecretSize:
		doing = fmt.Sprintf("round %d", status.Round)
	case status.Kind != "":
		doing = fmt.Sprintf("round %d, %s %s%s", status.Round, status.Kind, status.Statistic, status.Set)
	}

	writer.SetTitle("%s: %s; %.1f MB up, %.1f MB down; %d late, %d refused, %d dropped, %d instructions repeated",
		status.Name, doing, float64(status.BytesUp)/1e6, float64(status.BytesDown)/1e6, status.Late,
		status.Refused+status.RefusedJoins, status.Dropped, status.Repeats)

	writer.AppendHeader(table.Row{"client", "state", "instruction", "connected", "backbone", "domain", "examples",
		"replies", "refused", "up kB", "down kB"})
	var reasons []string
	for _, clientStatus := range status.Clients {
		state, order, heard := clientStatus.Doing, "", "never"
		switch {
		case !clientStatus.Joined:
			state = "not joined"
		case clientStatus.Left:
			state = "left"
		case clientStatus.Seen != 0:
			state = "not connected"
		case clientStatus.Unawaited:
			state = "not waited for"
		}

		if clientStatus.Asked {
			order = "asked"
		}

		if clientStatus.Answered {
			order = "answered"
		}

		switch {
		case clientStatus.Seen == 0:
			heard = "now"
		case clientStatus.Seen > 0:
			heard = fmt.Sprintf("%.0f s ago", clientStatus.Seen)
		}

		examples := ""
		switch {
		case clientStatus.Counted > 0:
			examples = fmt.Sprintf("%d of %d used", clientStatus.Counted, clientStatus.Examples)
		case clientStatus.Examples > 0:
			examples = strconv.Itoa(clientStatus.Examples)
		}

		if clientStatus.Reason != "" {
			reasons = append(reasons, fmt.Sprintf("\nclient %d was refused: %s", clientStatus.Client,
				clientStatus.Reason))
		}

		writer.AppendRow(table.Row{clientStatus.Client, state, order, heard, clientStatus.Backbone, clientStatus.Domain,
			examples, clientStatus.Replies, clientStatus.Refused,
			fmt.Sprintf("%.1f", float64(clientStatus.Up)/1e3), fmt.Sprintf("%.1f", float64(clientStatus.Down)/1e3)})
	}

	out := writer.Render() + strings.Join(reasons, "")
	if status.Insecure {
		out += "\n" + insecure
	}

	if status.Secret {
		out += "\nwhich clients train is secret, since epsilon counts on it: instructions, replies and bytes of " +
			"clients are not shown"
	}

	var facts facts.Facts
	if json.Unmarshal(status.Facts, &facts) == nil && len(facts) > 0 {
		out += "\n" + joinTable("what runs, and what protects clients", runTerms(facts))
	}

	return out
}

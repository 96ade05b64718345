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
	"golang.org/x/term"

	"promptfed/federation/experiment/facts"
	"promptfed/federation/net/certs"
	netclient "promptfed/federation/net/client"
	"promptfed/federation/net/wait"
	"promptfed/federation/net/wire"
	"promptfed/tools/promptfed/cli"
)

func statusCommand() *cobra.Command {
	var access cli.Access
	c := &cobra.Command{Use: "status URL [--tls DIR] [--token SECRET]", Args: oneURL,
		Short: "show the state of a run of promptfed serve: clients, rounds and bytes; updated live on a terminal"}
	result := cli.AddJSON(c, cli.Shape{Value: wire.Status{}})
	access.Add(c, "the server's secret", "folder with ca.pem, status.pem and status-key.pem, as promptfed certs makes "+
		"it")
	c.RunE = func(cmd *cobra.Command, args []string) error {
		server, err := link(access, args[0], certs.StatusUser, "", slog.New(slog.DiscardHandler))
		if err != nil {
			return err
		}
		defer server.Close()
		live := term.IsTerminal(int(os.Stdout.Fd())) && !result.JSON
		for {
			s, err := fetchStatus(cmd.Context(), server)
			if err != nil {
				return err
			}
			s.Round++ // counted from 1
			text := statusTable(s) + "\n"
			if live {
				text = "\033[H\033[2J" + text
			}
			if err := result.Print(*s, text); err != nil {
				return err
			}
			if !live || wait.For(cmd.Context(), time.Second) != nil {
				return nil
			}
		}
	}
	return c
}

func fetchStatus(ctx context.Context, server *netclient.Link) (*wire.Status, error) {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	return server.FetchStatus(ctx)
}

// statusTable returns a table of a run, with a row for each client.
func statusTable(s *wire.Status) string {
	t := table.NewWriter()
	t.SetStyle(table.StyleLight)
	doing := "no instruction"
	switch {
	case s.SecretSize:
		doing = fmt.Sprintf("round %d", s.Round)
	case s.Kind != "":
		doing = fmt.Sprintf("round %d, %s %s%s", s.Round, s.Kind, s.Statistic, s.Set)
	}
	t.SetTitle("%s: %s; %.1f MB up, %.1f MB down; %d late, %d refused, %d dropped, %d instructions repeated", s.Name,
		doing,
		float64(s.BytesUp)/1e6, float64(s.BytesDown)/1e6, s.Late, s.Refused+s.RefusedJoins, s.Dropped, s.Repeats)
	t.AppendHeader(table.Row{"client", "state", "instruction", "connected", "backbone", "domain", "examples",
		"replies", "refused", "up kB", "down kB"})
	var reasons []string
	for _, c := range s.Clients {
		state, order, heard := c.Doing, "", "never"
		switch {
		case !c.Joined:
			state = "not joined"
		case c.Left:
			state = "left"
		case c.Seen != 0:
			state = "not connected"
		case c.Unawaited:
			state = "not waited for"
		}
		if c.Asked {
			order = "asked"
		}
		if c.Answered {
			order = "answered"
		}
		switch {
		case c.Seen == 0:
			heard = "now"
		case c.Seen > 0:
			heard = fmt.Sprintf("%.0f s ago", c.Seen)
		}
		examples := ""
		switch {
		case c.Counted > 0:
			examples = fmt.Sprintf("%d of %d used", c.Counted, c.Examples)
		case c.Examples > 0:
			examples = strconv.Itoa(c.Examples)
		}
		if c.Reason != "" {
			reasons = append(reasons, fmt.Sprintf("\nclient %d was refused: %s", c.Client, c.Reason))
		}
		t.AppendRow(table.Row{c.Client, state, order, heard, c.Backbone, c.Domain, examples, c.Replies, c.Refused,
			fmt.Sprintf("%.1f", float64(c.Up)/1e3), fmt.Sprintf("%.1f", float64(c.Down)/1e3)})
	}
	out := t.Render() + strings.Join(reasons, "")
	if s.Insecure {
		out += "\n" + insecure
	}
	if s.Secret {
		out += "\nwhich clients train is secret, since epsilon counts on it: instructions, replies and bytes of " +
			"clients are not shown"
	}
	var facts facts.Facts
	if json.Unmarshal(s.Facts, &facts) == nil && len(facts) > 0 {
		out += "\n" + joinTable("what runs, and what protects clients", runTerms(facts))
	}
	return out
}

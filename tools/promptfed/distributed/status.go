package distributed

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/nats-io/nats.go"
	"github.com/spf13/cobra"
	"golang.org/x/term"

	"promptfed/federation/experiment/facts"
	"promptfed/federation/net/certs"
	"promptfed/federation/transport"
	"promptfed/federation/transport/subjects"
	"promptfed/tools/promptfed/cli"
)

func statusCommand() *cobra.Command {
	var run string
	var link LinkOptions
	var asJSON, once bool
	c := &cobra.Command{Use: "status URL [--run NAME] [--tls DIR | --token SECRET | --creds FILE]",
		Args: cli.Exactly(1), Short: "show the state of a run of promptfed serve: clients, rounds and bytes; updated " +
			"live on a terminal"}
	l := c.Flags()
	l.StringVar(&run, "run", "default", "name of the run on the server")
	l.BoolVar(&asJSON, "json", false, "print one JSON object and exit")
	l.BoolVar(&once, "once", false, "print the table once, even on a terminal")
	link.addToken(c, "the server's secret")
	l.StringVar(&link.creds, "creds", "", "NATS credentials file")
	l.StringVar(&link.TLS, "tls", "", "folder with ca.pem, status.pem and status-key.pem, as promptfed certs makes it")
	c.RunE = func(cmd *cobra.Command, args []string) error {
		if err := subjects.CheckName(run); err != nil {
			return cli.Usagef("--run: %w", err)
		}
		link.user = certs.StatusUser
		options, err := link.options()
		if err != nil {
			return err
		}
		nc, err := nats.Connect(args[0], append(options, nats.CustomInboxPrefix(subjects.StatusInbox(run)),
			nats.Timeout(5*time.Second))...)
		if err != nil {
			return fmt.Errorf("cannot connect to %s: %w", args[0], err)
		}
		defer nc.Close()
		live := term.IsTerminal(int(os.Stdout.Fd())) && !asJSON && !once
		for {
			s, err := askStatus(cmd.Context(), nc, run)
			if err != nil {
				return err
			}
			if asJSON {
				return json.NewEncoder(os.Stdout).Encode(s)
			}
			if live {
				fmt.Print("\033[H\033[2J")
			}
			fmt.Println(statusTable(s))
			if !live {
				return nil
			}
			select {
			case <-time.After(time.Second):
			case <-cmd.Context().Done():
				return nil
			}
		}
	}
	return c
}

func askStatus(ctx context.Context, nc *nats.Conn, run string) (*transport.Status, error) {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	return transport.AskStatus(ctx, nc, run)
}

// statusTable returns a table of a run, with a row for each client.
func statusTable(s *transport.Status) string {
	t := table.NewWriter()
	t.SetStyle(table.StyleLight)
	doing := "no instruction"
	switch {
	case s.SecretSize:
		doing = fmt.Sprintf("round %d", s.Round+1)
	case s.Kind != "":
		doing = fmt.Sprintf("round %d, %s %s%s", s.Round+1, s.Kind, s.Statistic, s.Set)
	}
	t.SetTitle("%s: %s; %.1f MB up, %.1f MB down; %d late, %d refused, %d dropped, %d instructions repeated", s.Name,
		doing,
		float64(s.BytesUp)/1e6, float64(s.BytesDown)/1e6, s.Late, s.Refused+s.RefusedJoins, s.Dropped, s.Repeats)
	t.AppendHeader(table.Row{"client", "state", "instruction", "last message", "backbone", "domain", "examples",
		"replies", "refused", "up kB", "down kB"})
	var reasons []string
	for _, c := range s.Clients {
		state, order, heard := c.Doing, "", "never"
		switch {
		case !c.Joined:
			state = "not joined"
		case c.Left:
			state = "left"
		case c.Seen > 10:
			state = "silent"
		case c.Unawaited:
			state = "not waited for"
		}
		if c.Asked {
			order = "asked"
		}
		if c.Answered {
			order = "answered"
		}
		if c.Seen >= 0 {
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

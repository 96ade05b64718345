package report

import (
	"context"
	"fmt"
	"net"
	"os"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"promptfed/tools/lab/report"
	"promptfed/tools/lab/ui"
	"promptfed/tools/promptfed/cli"
	"promptfed/tools/promptfed/hostguard"
)

const (
	uiPort  = 7007
	uiEvery = time.Second // time between two reads of the folders
)

func uiCommand() *cobra.Command {
	var port int
	command := &cobra.Command{Use: "ui [DIR...] [--port N]",
		Short: "serve a local web page of all runs and sweeps below DIR (default " + cli.RunsFolder + "), updated " +
			"while they run"}
	command.Flags().IntVar(&port, "port", uiPort, "port on 127.0.0.1; 0 for any free one")
	command.RunE = func(command *cobra.Command, dirs []string) error {
		if len(dirs) == 0 {
			dirs = []string{cli.RunsFolder}
		}

		for _, dir := range dirs {
			if info, err := os.Stat(dir); err != nil || !info.IsDir() {
				return cli.Usagef("%s is not a folder; give one with run folders in or below it", dir)
			}
		}

		l, err := net.Listen("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(port)))
		if err != nil {
			return fmt.Errorf("port %d cannot be used: %w; choose another with --port", port, err)
		}

		fmt.Printf("http://%s (until Ctrl-C)\n", l.Addr())
		return serveUI(command.Context(), l, dirs)
	}

	return command
}

// serveUI serves the page about some folders until the context ends.
func serveUI(ctx context.Context, l net.Listener, dirs []string) error {
	handler := ui.New(report.Live(dirs))
	go handler.Watch(ctx, uiEvery)
	return hostguard.Serve(ctx, l, handler)
}

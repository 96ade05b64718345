package distributed

import (
	"fmt"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"

	"promptfed/federation/net/authority"
	"promptfed/federation/net/certs"
	"promptfed/tools/promptfed/cli"
)

func certsCommand() *cobra.Command {
	clients, days := 0, 90
	var hosts []string
	var signer string
	var renew, revoke []string
	c := &cobra.Command{Use: "certs DIR --clients N [--host NAME ...] [--authority DIR] | certs DIR [--revoke NAME] " +
		"[--renew NAME]", Args: cli.Exactly(1),
		Short: "create a small certificate authority for trials, with a certificate for the server and for each client"}
	c.Flags().IntVar(&clients, "clients", 0, "number of clients; those that have a certificate keep it")
	c.Flags().IntVar(&days, "days", days, "days that the certificates are valid")
	c.Flags().StringSliceVar(&hosts, "host", []string{"localhost", "127.0.0.1", "::1"},
		"names and addresses under which clients reach the server")
	c.Flags().StringVar(&signer, "authority", "", "folder of the authority's private key, which neither server nor "+
		"clients need (default DIR-authority)")
	c.Flags().StringSliceVar(&revoke, "revoke", nil, "revoke all certificates of NAME (client-K, server, status, "+
		"worker), or the one in a file: add them to "+certs.RevocationFile+" in DIR, which a running server reads")
	c.Flags().StringSliceVar(&renew, "renew", nil, "make a new certificate and key for NAME; the old certificate "+
		"moves to the authority's folder and stays valid until it is revoked")
	c.RunE = func(_ *cobra.Command, args []string) error {
		if signer == "" {
			signer = filepath.Clean(args[0]) + "-authority"
		}
		const mostDays = 100 * 365
		if days < 1 || days > mostDays {
			return cli.Usagef("--days %d: expected 1 to %d", days, mostDays)
		}
		if len(renew)+len(revoke) > 0 && clients == 0 {
			return authority.Replace(args[0], signer, revoke, renew, time.Now(), time.Duration(days)*24*time.Hour,
				func(format string, a ...any) { fmt.Printf(format, a...) })
		}
		if clients < 1 || clients > 1<<16 {
			return cli.Usagef("--clients %d: expected 1 to %d", clients, 1<<16)
		}
		made, err := authority.Make(args[0], signer, clients, hosts, time.Now(), time.Duration(days)*24*time.Hour)
		if err != nil {
			return err
		}
		fmt.Printf("%d certificates made in %s: give each client ca.pem, client-K.pem and client-K-key.pem; keep %s "+
			"safe and away from the server: its key signs new certificates\n",
			made, args[0], signer)
		return nil
	}
	return c
}

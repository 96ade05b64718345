package command

import (
	"fmt"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"

	"promptfed/federation/transport/authority"
	"promptfed/federation/transport/certs"
)

func certsCommand() *cobra.Command {
	clients, days := 0, 90
	var hosts []string
	var signer string
	var renew, revoke []string
	c := &cobra.Command{Use: "certs DIR --clients N [--host NAME ...] [--authority DIR] | certs DIR [--revoke NAME] " +
		"[--renew NAME]", Args: exactly(1),
		Short: "make a small certificate authority for a trial: a certificate for the server and one for each client"}
	c.Flags().IntVar(&clients, "clients", 0, "how many clients; those that have a certificate keep it")
	c.Flags().IntVar(&days, "days", days, "how long the certificates are good for")
	c.Flags().StringSliceVar(&hosts, "host", []string{"localhost", "127.0.0.1", "::1"},
		"names and addresses under which clients reach the server")
	c.Flags().StringVar(&signer, "authority", "", "folder of the authority's key, which no server and no client "+
		"needs (default DIR-authority)")
	c.Flags().StringSliceVar(&revoke, "revoke", nil, "write all certificates of NAME (client-K, server, status, "+
		"worker), or the one in a file, into the list "+certs.RevocationFile+" of DIR, which a running serve heeds")
	c.Flags().StringSliceVar(&renew, "renew", nil, "make a new certificate and key for NAME; the old certificate goes "+
		"to the authority's folder and counts until it is revoked")
	c.RunE = func(_ *cobra.Command, args []string) error {
		if signer == "" {
			signer = filepath.Clean(args[0]) + "-authority"
		}
		if len(renew)+len(revoke) > 0 && clients == 0 && days >= 1 {
			return authority.Replace(args[0], signer, revoke, renew, time.Now(), time.Duration(days)*24*time.Hour,
				func(format string, a ...any) { fmt.Printf(format, a...) })
		}
		if clients < 1 || clients > 1<<16 || days < 1 {
			return usageError{fmt.Errorf("--clients %d, --days %d: each must be 1 or more, and there can be 65536 "+
				"clients", clients, days)}
		}
		made, err := authority.Make(args[0], signer, clients, hosts, time.Now(), time.Duration(days)*24*time.Hour)
		if err != nil {
			return err
		}
		fmt.Printf("%d certificates made in %s: give each client ca.pem, client-K.pem and client-K-key.pem; %s makes "+
			"more of them: keep it apart, the server does not need it\n",
			made, args[0], signer)
		return nil
	}
	return c
}

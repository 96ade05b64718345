package distributed

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"promptfed/federation/net/authority"
	"promptfed/federation/net/certs"
	"promptfed/tools/promptfed/cli"
)

// certsFlags are the flags of certs.
type certsFlags struct {
	dir, signer          string
	clients, days        int
	hosts, renew, revoke []string
	request, approve     string
	fingerprint          string
	yes                  bool
	out                  io.Writer
	result               *cli.Printer
	done                 *certsDone
}

// certsDone is what certs did in a folder.
type certsDone struct {
	Folder       string   `json:"folder"`
	Name         string   `json:"name"`         // of the request; empty without one
	Fingerprint  string   `json:"fingerprint"`  // of its key
	Certificates int      `json:"certificates"` // made by --clients
	Notes        []string `json:"notes"`        // files and actions, a line each
}

func (f certsFlags) say(format string, a ...any) {
	if text := fmt.Sprintf(format, a...); f.result.JSON {
		f.done.Notes = append(f.done.Notes, strings.TrimSpace(text))
	} else {
		fmt.Fprint(f.out, text)
	}
}

func certsCommand() *cobra.Command {
	var flags certsFlags
	command := &cobra.Command{Use: "certs DIR --request NAME [--host NAME ...] | certs DIR --approve FILE " +
		"[--host NAME ...] | certs DIR --clients N [--host NAME ...] | certs DIR [--revoke NAME] [--renew NAME " +
		"[--host NAME ...]]",
		Args:  cli.Exactly(1),
		Short: "make keys and signing requests on each machine, and approve them with a small certificate authority"}

	flagSet := command.Flags()
	flagSet.StringVar(&flags.request, "request", "",
		"make the key of NAME (client-K, status, worker, server) in DIR, if it "+
			"has none, and the signing request DIR/NAME.csr; the key stays on this machine")
	flagSet.StringVar(&flags.approve, "approve", "",
		"sign the request in this file with the authority, which is made at the first use")
	flagSet.StringVar(&flags.fingerprint, "fingerprint", "",
		"approve only the key with this fingerprint, or with its first 16 "+
			"digits or more, without being asked on a terminal")
	flagSet.BoolVar(&flags.yes, "yes", false, "approve the request without being asked on a terminal")

	flagSet.IntVar(&flags.clients, "clients", 0,
		"for trials: make the keys and certificates of the server, N clients, "+
			"status and workers in DIR; whoever makes them has every client's key; names with a certificate keep it")
	flagSet.IntVar(&flags.days, "days", 90, "days that the certificates are valid, at most to the authority's end")
	flagSet.StringSliceVar(&flags.hosts, "host", nil, "names and addresses under which clients reach the server; "+
		"with --approve, all that the server may have (default: those of the certificate that --renew replaces; else "+
		"localhost,127.0.0.1,::1)")
	flagSet.StringVar(&flags.signer, "authority", "",
		"folder of the authority's private key, which neither server nor clients need (default DIR-authority)")
	flagSet.StringSliceVar(&flags.revoke, "revoke", nil, "revoke all certificates of NAME (client-K, server, status, "+
		"worker), or the one in a file: add them to "+certs.RevocationFile+" in DIR, which a running server reads")

	flagSet.StringSliceVar(&flags.renew, "renew", nil, "make a new certificate and key for NAME, or with --approve a "+
		"certificate for another key; the old certificate moves to the authority's folder and stays valid until it is "+
		"revoked")
	flags.result = cli.AddJSON(command, certsDone{})
	command.RunE = func(cmd *cobra.Command, args []string) error {
		flags.dir, flags.out, flags.done = args[0], cmd.OutOrStdout(), &certsDone{Folder: args[0]}
		if err := flags.run(cmd); err != nil {
			return err
		}
		flags.noteEnd()
		return flags.result.Print(*flags.done, "")
	}

	return command
}

func (f certsFlags) run(cmd *cobra.Command) error {
	if f.signer == "" {
		f.signer = filepath.Clean(f.dir) + "-authority"
	}

	const mostDays = 100 * 365
	if f.days < 1 || f.days > mostDays {
		return cli.Usagef("--days %d: expected 1 to %d", f.days, mostDays)
	}

	steps := 0
	for _, flag := range []string{"clients", "request", "approve"} {
		if cmd.Flags().Changed(flag) {
			steps++
		}
	}

	replaced := len(f.renew)+len(f.revoke) > 0
	if steps > 1 || replaced && steps > 0 && f.approve == "" {
		return cli.Usagef("--clients, --request, --approve and --renew or --revoke are separate steps; only " +
			"--approve takes --renew and --revoke")
	}

	if cmd.Flags().Changed("host") {
		if err := authority.CheckHosts(f.hosts); err != nil {
			return cli.Usage(err)
		}
		if replaced && f.approve == "" && !slices.Contains(f.renew, certs.ServerName) {
			return cli.Usagef("--host is for a certificate of the server: add --renew %s", certs.ServerName)
		}
	}

	life := time.Duration(f.days) * 24 * time.Hour
	switch {
	case f.request != "":
		r, err := authority.MakeRequest(f.dir, f.request, f.hosts)
		if err != nil {
			return err
		}
		f.done.Name, f.done.Fingerprint = r.Name, r.Fingerprint
		f.say("the key of %[2]s has the fingerprint %[3]s: send %[4]s to the holder of the authority; compare the "+
			"fingerprint over another channel; put the answer's ca.pem and %[2]s.pem into %[1]s\n", f.dir, r.Name,
			r.Fingerprint, filepath.Join(f.dir, r.Name+".csr"))
		return nil
	case f.approve != "":
		return f.sign(cmd, life)
	case replaced:
		return authority.Replace(f.dir, f.signer, f.revoke, f.renew, f.hosts, life, f.say)
	case !cmd.Flags().Changed("clients"):
		return cli.Needed("certs", "--request NAME, --approve FILE, --renew NAME, --revoke NAME or --clients N")
	case f.clients < 1 || f.clients > 1<<16:
		return cli.Usagef("--clients %d: expected 1 to %d", f.clients, 1<<16)
	}

	made, err := authority.Make(f.dir, f.signer, f.clients, f.hosts, life)
	if err != nil {
		return err
	}

	f.done.Certificates = made
	f.say("%d certificates made in %s, for a trial: this machine has every client's key (--request makes a key on "+
		"the client's own machine); give each client ca.pem, client-K.pem and client-K-key.pem; keep %s safe and away "+
		"from the server: its key signs new certificates\n", made, f.dir, f.signer)
	return nil
}

// noteEnd says if the authority ends before the certificates of --days would.
func (f certsFlags) noteEnd() {
	end, err := authority.End(f.dir)
	if err == nil && f.request == "" && end.Before(time.Now().AddDate(0, 0, f.days)) {
		f.say("the authority ends on %s, and its certificates with it: for later ones make a new authority in another "+
			"folder, and give its ca.pem to all machines\n", end.Format(time.DateOnly))
	}
}

// sign approves a request.
func (f certsFlags) sign(cmd *cobra.Command, life time.Duration) error {
	request, err := authority.ReadRequest(f.approve)
	if err != nil {
		return err
	}

	for _, name := range f.renew {
		if name != request.Name {
			return cli.Usagef("--renew %s: %s is a request of %s", name, f.approve, request.Name)
		}
	}

	f.done.Name, f.done.Fingerprint = request.Name, request.Fingerprint
	f.say("%s is a request of %s, whose key has the fingerprint %s\n", f.approve, request.Name, request.Fingerprint)
	switch {
	case cmd.Flags().Changed("fingerprint"): // an empty one of a script is an error
		if len(f.fingerprint) < authority.MinFingerprint {
			return cli.Usagef("--fingerprint %s: expected %d digits or more", f.fingerprint, authority.MinFingerprint)
		}
		if !request.Matches(f.fingerprint) {
			return fmt.Errorf("%s is not the fingerprint of %s, so its key may be somebody else's; ask %s for the "+
				"file again; nothing was signed", f.fingerprint, f.approve, request.Name)
		}
	case f.yes:
	case onTerminal(cmd.InOrStdin()) && onTerminal(f.out) && !f.result.JSON:
		f.say("does its sender name the same fingerprint over another channel? then approve it [y/N] ")
		if err := readYes(cmd.Context(), cmd.InOrStdin()); errors.Is(err, errDeclined) {
			return errors.New("nothing was signed")
		} else if err != nil {
			return err
		}
	default:
		return cli.Usagef("there is no terminal to ask at: give the fingerprint that its sender tells you over " +
			"another channel with --fingerprint, or --yes")
	}

	return authority.Approve(f.dir, f.signer, request, f.hosts, f.revoke, len(f.renew) > 0, life, f.say)
}

// onTerminal reports whether a stream is a terminal.
func onTerminal(stream any) bool {
	file, ok := stream.(*os.File)
	return ok && term.IsTerminal(int(file.Fd()))
}

package cli

import (
	"context"
	"os"
	"path/filepath"
	"runtime"
	"time"

	"github.com/spf13/cobra"

	"promptfed/federation/engine"
	"promptfed/federation/experiment"
)

// Machines connects this program with programs on other machines. Main functions pass it to the commands, so that a
// program that only hands such work over (command.Handover) links neither NATS nor an RPC server.
type Machines struct {
	// Commands are the commands of NewMachineCommand.
	Commands []*cobra.Command
	// OpenCluster connects to the NATS server at the URL of the flags, or starts it.
	OpenCluster func(ctx context.Context, f ClusterFlags) (Cluster, error)
	// Work trains clients of the runs on the NATS server at url, until none needed workers for idle. The folders of
	// data and the runtime come from here.
	Work func(ctx context.Context, url string, o QueueOptions, idle time.Duration, here experiment.Config) error
}

// Cluster is a connection to a NATS server on which runs find workers.
type Cluster interface {
	// Spread lets workers train and test the clients of an experiment; done ends their queue.
	Spread(ctx context.Context, f *experiment.Federation, set *engine.Settings) (done func(), err error)
	// Close closes the connection and stops a server of this process.
	Close()
}

// MachineCommands are the names of the commands across machines, with one line of help.
var MachineCommands = [][2]string{
	{"serve", "run an experiment whose clients are on other machines (promptfed join); the server holds no data"},
	{"join", "take part in an experiment of promptfed serve as one client; this machine only makes outgoing " +
		"connections"},
	{"status", "show the state of a run of promptfed serve: clients, rounds and bytes; updated live on a terminal"},
	{"certs", "make keys and signing requests on each machine, and approve them with a small certificate authority"},
	{"work", "train clients for runs on other machines (promptfed run --cluster), one run after the other, until " +
		"stopped"},
}

// WholeProgram returns the path of promptfed-net, which has the commands across machines and lies beside this program.
func WholeProgram() (string, error) {
	self, err := os.Executable()
	path := filepath.Join(filepath.Dir(self), "promptfed-net")
	if runtime.GOOS == "windows" {
		path += ".exe"
	}
	return path, err
}

// NewMachineCommand returns a command of MachineCommands with its line of help. The use line continues with usage.
func NewMachineCommand(name, usage string, args cobra.PositionalArgs) *cobra.Command {
	c := &cobra.Command{Use: name + usage, Args: args}
	for _, m := range MachineCommands {
		if m[0] == name {
			c.Short = m[1]
		}
	}
	return c
}

// QueueOptions are the options of a connection to the work queue of a cluster.
type QueueOptions struct {
	Access
	Queue string
	Creds string // NATS credentials file; empty for none
}

// Add adds the flags to a command.
func (o *QueueOptions) Add(c *cobra.Command) {
	l := c.Flags()
	l.StringVar(&o.Queue, "queue", "default", "name of the work queue on the NATS server; workers must use the same")
	o.Access.Add(c, "secret that both sides use", "folder that promptfed certs made")
	l.StringVar(&o.Creds, "creds", "", "NATS credentials file")
}

// ClusterFlags are the flags of a run whose clients train on other machines.
type ClusterFlags struct {
	QueueOptions
	URL string // empty without other machines
	// Opened, if not nil, receives the address of the NATS server that OpenCluster starts in this process.
	Opened func(url string) error
}

// ListenScheme is the scheme of the URL of a NATS server that OpenCluster starts in this process.
const ListenScheme = "listen://"

// Add adds the flags to a command.
func (f *ClusterFlags) Add(c *cobra.Command) {
	c.Flags().StringVar(&f.URL, "cluster", "", "train the clients on machines that run promptfed work: URL of a NATS "+
		"server with JetStream, or listen://HOST:PORT to start one here")
	f.QueueOptions.Add(c)
}

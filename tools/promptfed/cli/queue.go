package cli

import "github.com/spf13/cobra"

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

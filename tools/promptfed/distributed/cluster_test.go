package distributed

import (
	"errors"
	"net"
	"os"
	"strings"
	"testing"

	"promptfed/tools/promptfed/cli"
)

// openCluster stops the server of this process if its address cannot be passed to the workers.
func TestClusterIsClosed(t *testing.T) {
	var address string
	f := cli.ClusterFlags{URL: cli.ListenScheme + "127.0.0.1:0", QueueOptions: cli.QueueOptions{Queue: "default"}}
	f.Opened = func(at string) error {
		address = strings.TrimPrefix(at, "nats://")
		return os.ErrPermission
	}
	if _, err := OpenCluster(t.Context(), f); !errors.Is(err, os.ErrPermission) {
		t.Fatal(err)
	}
	if c, err := net.Dial("tcp", address); err == nil {
		c.Close()
		t.Errorf("%s still answers", address)
	}
}

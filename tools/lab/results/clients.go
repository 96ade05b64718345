package results

import (
	"encoding/json"
	"fmt"
	"path/filepath"

	"promptfed/federation/experiment"
)

const maxClients = 256 << 20

// Clients reads the run's clients.json. It returns nil without an error for folders of older versions, which have no
// such file. The file is read on demand, because the clients of all runs of a large sweep would not fit into memory.
func (r *Run) Clients() (*experiment.Clients, error) {
	path := filepath.Join(r.Dir, ClientsFile)
	text, err := readSmall(path, maxClients)
	if text == nil || err != nil {
		return nil, err
	}
	c, err := parseClients(text)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return c, nil
}

func parseClients(text []byte) (*experiment.Clients, error) {
	var c experiment.Clients
	if err := json.Unmarshal(text, &c); err != nil {
		return nil, fmt.Errorf("not the clients of a run: %w", err)
	}
	for i, k := range c.Clients {
		for _, counts := range [][]int{k.Train, k.Val, k.Test} {
			if !sameLength(len(c.Classes), len(counts)) {
				return nil, fmt.Errorf("client %d has counts of %d classes, the run has %d", i, len(counts),
					len(c.Classes))
			}
			for _, n := range counts {
				if n < 0 {
					return nil, fmt.Errorf("client %d has %d examples of a class", i, n)
				}
			}
		}
	}
	return &c, nil
}

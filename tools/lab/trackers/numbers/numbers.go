package numbers

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
)

// Number is one number of a round or of a summary.
type Number struct {
	Path   []string // keys down to it, as [evaluations global accuracy]; an element of a list by its name or round
	Client int      // the client that it is of; Whole for what is of the whole round
	Value  float64
}

// Whole stands for the client of a number that is of no single client.
const Whole = -1

// Name joins the keys of the path with a separator, one byte. Within a key that is written %2E or %2F as in addresses,
// and % is %25, so that names of two numbers differ.
func (n Number) Name(separator string) string {
	within := strings.NewReplacer("%", "%25", separator, fmt.Sprintf("%%%X", separator))
	var keys []string
	for _, k := range n.Path {
		keys = append(keys, within.Replace(k))
	}
	return strings.Join(keys, separator)
}

// Of lists the numbers of a line of rounds.jsonl, or of a summary.json, in the order of their keys, but for those that
// skip names at the top. A list of numbers is by client: those that answered or have validation data, where they are
// listed beside it, else all in order. A list of clients has the value 1 for each of them. Texts, truth values and
// nulls are left out, and so is the version of the format.
func Of(line []byte, skip ...string) ([]Number, error) {
	var top map[string]any
	if err := json.Unmarshal(line, &top); err != nil {
		return nil, err
	}
	for _, key := range append(skip, "format") {
		delete(top, key)
	}
	w := walker{}
	w.object(top, nil, Whole, nil)
	return w.out, nil
}

// ofClients are keys of lists whose numbers are clients.
var ofClients = []string{"clients", "answered", "unanswered"}

// ofTest are keys of what is about the clients of the test that holds it.
var ofTest = []string{"evaluations", "global", "personal"}

type walker struct{ out []Number }

// object adds what an object at a path holds; clients are those that its lists are about, nil for all in order.
func (w *walker) object(v map[string]any, path []string, client int, clients []any) {
	beside := "answered"
	if len(path) == 1 && path[0] == "validation" {
		beside = "clients"
	}
	if own, ok := v[beside].([]any); ok {
		clients = own
	}
	for _, key := range slices.Sorted(maps.Keys(v)) {
		at := append(slices.Clip(path), key)
		switch x := v[key].(type) {
		case float64:
			w.out = append(w.out, Number{at, client, x})
		case map[string]any:
			if slices.Contains(ofTest, key) {
				w.object(x, at, client, clients)
			} else {
				w.object(x, at, client, nil)
			}
		case []any:
			w.list(x, at, client, clients)
		}
	}
}

func (w *walker) list(list []any, path []string, client int, clients []any) {
	for i, v := range list {
		switch x := v.(type) {
		case float64:
			of := i
			if slices.Contains(ofClients, path[len(path)-1]) {
				of, x = int(x), 1
			} else if i < len(clients) {
				if id, ok := clients[i].(float64); ok {
					of = int(id)
				}
			}
			w.out = append(w.out, Number{path, of, x})
		case map[string]any:
			name, of := strconv.Itoa(i), client
			for _, key := range []string{"name", "backbone"} {
				if s, ok := x[key].(string); ok {
					name = s
				}
			}
			if id, ok := x["client"].(float64); ok {
				of = int(id)
				delete(x, "client")
				w.object(x, path, of, nil)
				continue
			}
			w.object(x, append(slices.Clip(path), name), of, nil)
		}
	}
}

package numbers

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"promptfed/runtime/convert"
)

// Number is one number of a round or of a summary.
type Number struct {
	Path   []string // keys of its path, such as [evaluations global accuracy]; list elements by name or round
	Client int      // its client; NoClient for a number of the whole round
	Value  float64
}

// NoClient is the client of a number that belongs to no single client.
const NoClient = -1

// Name joins the keys of the path with a separator, one byte. A separator within a key is written %2E or %2F as in
// URLs, and % is written %25, so that different numbers have different names.
func (n Number) Name(separator string) string {
	within := strings.NewReplacer("%", "%25", separator, fmt.Sprintf("%%%X", separator))
	return strings.Join(convert.Slice(n.Path, within.Replace), separator)
}

// Parse lists the numbers of a line of rounds.jsonl, or of a summary.json, in the order of their keys, without the
// top-level names in skip. A list of numbers is by client: by the listed clients that answered or have validation data,
// or without such a list, by all clients in order. A list of clients has the value 1 for each client. Texts, booleans,
// nulls and the version of the format are omitted.
func Parse(line []byte, skip ...string) ([]Number, error) {
	var top map[string]any
	if err := json.Unmarshal(line, &top); err != nil {
		return nil, err
	}

	for _, key := range append(skip, "format") {
		delete(top, key)
	}

	w := walker{}
	w.object(top, nil, NoClient, nil)
	return w.out, nil
}

// ofClients are the keys of lists of client numbers.
var ofClients = []string{"clients", "answered", "unanswered"}

// ofTest are the keys of objects about the clients of the enclosing test.
var ofTest = []string{"evaluations", "global", "personal"}

type walker struct{ out []Number }

// object adds the numbers of an object at a path. clients are the clients of its lists; nil means all in order.
func (w *walker) object(object map[string]any, path []string, client int, clients []any) {
	beside := "answered"
	if len(path) == 1 && path[0] == "validation" {
		beside = "clients"
	}

	if own, ok := object[beside].([]any); ok {
		clients = own
	}

	for _, key := range slices.Sorted(maps.Keys(object)) {
		at := append(slices.Clip(path), key)
		switch x := object[key].(type) {
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
		switch element := v.(type) {
		case float64:
			owner := i
			if slices.Contains(ofClients, path[len(path)-1]) {
				owner, element = int(element), 1
			} else if i < len(clients) {
				if id, ok := clients[i].(float64); ok {
					owner = int(id)
				}
			}
			w.out = append(w.out, Number{path, owner, element})
		case map[string]any:
			name, owner := strconv.Itoa(i), client
			for _, key := range []string{"name", "backbone"} {
				if s, ok := element[key].(string); ok {
					name = s
				}
			}
			if id, ok := element["client"].(float64); ok {
				owner = int(id)
				delete(element, "client")
				w.object(element, path, owner, nil)
				continue
			}
			w.object(element, append(slices.Clip(path), name), owner, nil)
		}
	}
}

package fromfile

import (
	"slices"
	"strings"
)

// port is an input or an output of a file's graph.
type port struct {
	kind string // empty where there is one of its name
	part string // of the kind; empty for none
	name string
}

// kindParts lists the kinds of ports with their parts.
var kindParts = map[string][]string{"param": nil, "received": nil, "before": nil, "function": nil, "noise": nil,
	"state": nil, "down": nil, "prompt": nil, "up": nil, "merged": nil, "text": {"received", "before"},
	"uploads": {"up"}, "next": {"state", "down"}}

// Kinds of outputs at the end of a client's turn and of a round.
var (
	nextState = port{kind: "next", part: "state"}
	nextDown  = port{kind: "next", part: "down"}
	uploaded  = port{kind: "up"}
	merged    = port{kind: "merged"}
)

// parsePort returns the port of a name in a file. All other code has ports.
func parsePort(name string) port {
	kind, rest, _ := strings.Cut(name, "/")
	known, ok := kindParts[kind]
	if !ok {
		return port{name: name}
	}

	if part, after, more := strings.Cut(rest, "/"); more && slices.Contains(known, part) {
		return port{kind, part, after}
	}

	return port{kind: kind, name: rest}
}

// String returns the name in the file.
func (p port) String() string {
	words := []string{p.kind, p.part, p.name}
	return strings.Join(slices.DeleteFunc(words, func(word string) bool { return word == "" }), "/")
}

// among reports whether the port is one of some kinds.
func (p port) among(kinds ...port) bool {
	return slices.Contains(kinds, port{kind: p.kind, part: p.part})
}

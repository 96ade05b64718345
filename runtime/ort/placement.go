package ort

/*
#include "native.h"

typedef void *const *list;

static void *subgraphs(table t, void *session, list *out, size_t *n) {
	return ((void *(*)(void *, list *, size_t *))t[Session_GetEpGraphAssignmentInfo])(session, out, n);
}

static void *nodes(table t, void *subgraph, list *out, size_t *n) {
	return ((void *(*)(void *, list *, size_t *))t[EpAssignedSubgraph_GetNodes])(subgraph, out, n);
}

static void *text(table t, int kind, void *owner, const char **out) {
	return ((void *(*)(void *, const char **))t[kind])(owner, out);
}
*/
import "C"

import (
	"strings"
	"unsafe"

	"promptfed/runtime/onnx"
)

// Node is an operator of a session's graph after ONNX Runtime's basic optimisations.
type Node struct {
	Name     string
	Operator string // prefixed by its domain and a dot if the domain is not ONNX's
	Provider string // CPU, CUDA, or ONNX Runtime's name of another provider
}

// Placement returns the operators of a session with Options.Placement, each with the provider that runs it. It omits
// the copies that ONNX Runtime inserts between providers.
func (s *Session) Placement() (out []Node, err error) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	if s.replicas == nil {
		return nil, s.errorf("placement: %w", ErrClosed)
	}

	api, err := native()
	if err != nil {
		return nil, err
	}

	status := func(p unsafe.Pointer) {
		if failed := api.failed(p); err == nil && failed != nil {
			err = s.errorf("placement: %s", plain(failed))
		}
	}

	text := func(kind C.int, owner unsafe.Pointer) string {
		var t *C.char
		status(C.text(api.table, kind, owner, &t))
		return C.GoString(t)
	}

	var graphs, nodes C.list
	var n C.size_t
	status(C.subgraphs(api.table, s.replicas[0].session, &graphs, &n))
	for _, g := range unsafe.Slice((*unsafe.Pointer)(graphs), n) {
		provider := strings.TrimSuffix(text(C.EpAssignedSubgraph_GetEpName, g), "ExecutionProvider")
		status(C.nodes(api.table, g, &nodes, &n))
		for _, p := range unsafe.Slice((*unsafe.Pointer)(nodes), n) {
			op := onnx.Kind(text(C.EpAssignedNode_GetDomain, p), text(C.EpAssignedNode_GetOperatorType, p))
			out = append(out, Node{text(C.EpAssignedNode_GetName, p), op, strings.ToLower(provider)})
		}
	}

	return out, err
}

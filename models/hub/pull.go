package hub

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"promptfed/models/bundle"
	"promptfed/models/bundle/converted"
	"promptfed/models/tokenizer"
)

// source is where a checkpoint comes from.
type source struct {
	origin bundle.Origin
	path   string // of the checkpoint, once fetch has ended
	local  error  // why the hub was not asked; nil if it was
	// fetch brings the checkpoint here. It returns its vocabulary, or "" if that is a part of it.
	fetch func(ctx context.Context, progress Progress) (vocabulary string, err error)
}

// Pull fetches a model, unless its files are there, and makes a bundle of it in promptfed/bundles of the user's cache,
// where bundle.Find finds it. A bundle of the same commit is opened as it is. If the hub does not answer, the files in
// huggingface_hub's cache are used; local then says why.
func (h *Hub) Pull(ctx context.Context, model Model, progress Progress) (backbone *bundle.Bundle, local, err error) {
	cache, err := bundle.CacheDir()
	if err != nil {
		return nil, nil, err
	}

	out := filepath.Join(cache, "bundles", model.Folder())
	release, err := lock(ctx, filepath.Join(filepath.Dir(out), "."+model.Folder()+".lock"))
	if err != nil {
		return nil, nil, err
	}
	defer release()

	var from source
	if model.archive != "" {
		from = h.archive(model)
	} else if from, err = h.repository(ctx, model.HubName); err != nil {
		return nil, nil, err
	}

	old, ok := bundle.OriginOf(out)
	switch _, err := os.Stat(out); {
	case ok && old.Source == from.origin.Source && old.Revision == from.origin.Revision:
		if b, err := bundle.Open(out); err == nil {
			return b, from.local, nil
		}
	case err == nil && old.Source != from.origin.Source:
		return nil, nil, fmt.Errorf("%s is in the way, and not a bundle of %s: rename it", out, from.origin.Source)
	}

	o := converted.Options{Context: ctx, Origin: from.origin, Progress: func(done, total int64) {
		progress("conversion of "+model.Folder(), done, total)
	}}
	if o.Vocab, err = from.fetch(ctx, progress); err != nil {
		return nil, nil, err
	}

	if backbone, err = converted.Convert(from.path, out, o); err != nil {
		return nil, nil, fmt.Errorf("%s: %w", model.Backbone(), err)
	}

	return backbone, from.local, nil
}

// repository returns the checkpoint of a repository.
func (h *Hub) repository(ctx context.Context, name bundle.HubName) (source, error) {
	snapshot, err := h.open(ctx, name)
	if err != nil {
		return source{}, err
	}

	if snapshot.local != nil {
		snapshot.license = "unknown, the hub was not asked"
	}

	return source{bundle.Origin{Source: name.Repository, Revision: snapshot.commit, License: snapshot.license},
		snapshot.dir(), snapshot.local,
		func(ctx context.Context, progress Progress) (string, error) {
			return "", snapshot.fetch(ctx, snapshot.checkpointFiles, progress)
		}}, nil
}

// archive returns one of OpenAI's archives, in the folder where OpenAI's package clip has it.
func (h *Hub) archive(m Model) source {
	name, sum := m.Folder()+".pt", archives[m.archive]
	path := filepath.Join(h.clip, name)
	return source{bundle.Origin{Source: m.archive, Revision: sum, License: archiveLicense}, path, nil,
		func(ctx context.Context, progress Progress) (string, error) {
			release, err := lock(ctx, path+".lock")
			if err != nil {
				return "", err
			}
			defer release()

			f := file{what: name, address: h.archives + "/" + sum + "/" + name, sum: sum, size: -1,
				limit: maxWeights}
			if err := h.fetch(ctx, f, path, progress); err != nil {
				return "", err
			}

			s, err := h.open(ctx, vocabulary)
			if err != nil {
				return "", err
			}

			return s.dir(), s.fetch(ctx, func() ([]string, error) {
				return slices.DeleteFunc(tokenizer.FileNames(), func(name string) bool {
					return !slices.Contains(s.files, name)
				}), nil
			}, progress)
		}}
}

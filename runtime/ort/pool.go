package ort

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"

	"golang.org/x/sync/singleflight"
)

// Pool holds sessions by key. It compiles each of them once, even if several goroutines ask for it at the same time.
// The zero value is ready to use.
type Pool struct {
	group    singleflight.Group
	mu       sync.Mutex
	sessions map[string]*Session
	closed   bool
}

// Get returns the session of key, and builds it if there is none yet. If build fails, all waiting callers get the
// error, and the next Get tries again. The pool owns the session: callers do not close it.
func (p *Pool) Get(key string, build func() (*Session, error)) (*Session, error) {
	if s, err := p.lookup(key); s != nil || err != nil {
		return s, err
	}
	v, err, _ := p.group.Do(key, func() (any, error) {
		if s, err := p.lookup(key); s != nil || err != nil {
			return s, err
		}
		s, err := build()
		if err != nil {
			return nil, err
		}
		return s, p.keep(key, s)
	})
	if err != nil {
		return nil, err
	}
	return v.(*Session), nil
}

func (p *Pool) lookup(key string) (*Session, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return nil, fmt.Errorf("ort: pool: session %q: %w", key, ErrClosed)
	}
	return p.sessions[key], nil
}

func (p *Pool) keep(key string, s *Session) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return errors.Join(fmt.Errorf("ort: pool: session %q: %w", key, ErrClosed), s.Close())
	}
	if p.sessions == nil {
		p.sessions = map[string]*Session{}
	}
	p.sessions[key] = s
	return nil
}

// Close closes all sessions and waits for their runs. A second Close does nothing.
func (p *Pool) Close() error {
	p.mu.Lock()
	sessions := p.sessions
	p.sessions, p.closed = nil, true
	p.mu.Unlock()
	return closeSessions(slices.Collect(maps.Values(sessions))...)
}

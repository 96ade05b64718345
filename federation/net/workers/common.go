package workers

import (
	"context"
	"maps"
	"slices"
	"sync"

	"promptfed/federation/engine/message"
)

// common holds the tensors that all clients of an instruction get. They are encoded, and if they are large stored, once
// for all jobs.
type common struct {
	dispatcher  *Dispatcher
	instruction message.Instruction
	users       int // unfinished jobs; guarded by Dispatcher.mu

	mu     sync.Mutex
	body   []byte  // encoded
	stored content // as the object store has it
	opened int     // Dispatcher.opened when it was stored; 0 for never
}

// holdCommon returns the common tensors of an instruction, which the jobs of the same instruction share. Each call
// needs one of releaseCommon.
func (d *Dispatcher) holdCommon(instruction message.Instruction) *common {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, c := range d.commons { // tensors are not changed while an instruction is executed
		if maps.Equal(c.instruction.Shared, instruction.Shared) &&
			maps.Equal(c.instruction.Broadcast, instruction.Broadcast) {
			c.users++
			return c
		}
	}

	c := &common{dispatcher: d, instruction: instruction, users: 1}
	d.commons = append(d.commons, c)
	return c
}

func (d *Dispatcher) releaseCommon(c *common) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if c.users--; c.users == 0 {
		d.commons = slices.DeleteFunc(d.commons, func(x *common) bool { return x == c })
		d.remove(c.stored)
	}
}

// content returns the description of the tensors, and those that a message contains.
func (c *common) content(ctx context.Context) (content, []byte, error) {
	c.dispatcher.mu.Lock()
	opened := c.dispatcher.opened
	c.dispatcher.mu.Unlock()
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.body == nil {
		var err error
		if c.body, err = encodeCommon(c.instruction); err != nil {
			return content{}, nil, err
		}
	}

	if len(c.body) > c.dispatcher.tensors.limit && c.opened == opened {
		return c.stored, nil, nil
	}

	out, inline, err := c.dispatcher.tensors.put(ctx, c.body, true)
	if err == nil && out.Object != "" {
		c.stored, c.opened = out, opened
		c.dispatcher.count(func(t *Totals) { t.Down += int64(out.Size) })
	}

	return out, inline, err
}

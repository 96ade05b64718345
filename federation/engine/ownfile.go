package engine

import (
	"fmt"
	"strconv"

	"promptfed/federation/method"
	"promptfed/runtime/safetensors"
	"promptfed/runtime/tensor"
)

// WriteOwn writes to PromptsFile's form what one client is tested with: the shared parameters of the last order that it
// got, what it remembers, and what else its class scores read. Of other clients there is nothing, but their number. So
// whoever has no more than this client's part can classify with it and export it.
func (e *Experiment) WriteOwn(path string, c *Client, o Order, s State) error {
	t := c.Backbone.Task()
	t.Client, t.Clients, t.Classes, t.Backbone = c.ID, o.Of, len(e.Classes), c.Backbone.Name()
	members := make([]Member, o.Of)
	if c.ID < 0 || c.ID >= len(members) {
		return fmt.Errorf("client %d is none of %d", c.ID, o.Of)
	}
	members[c.ID] = Member{Joined: true, Task: t, Domain: c.Domain}
	id := strconv.Itoa(c.ID)
	g := &method.Global{Broadcast: o.Down, PerClient: o.Each}
	m := tensor.Map{}.Put("shared", o.Shared).Put(downFolder, e.sent(g, members)).
		Put("client/"+id+"/private", s.Private).Put("client/"+id+"/own", s.Own)
	if remembers(e.Method, t) {
		rows, err := memory(c, e.Plan.Seed)
		if err != nil {
			return err
		}
		m.Put(memoryFolder+"/"+id, tensor.Map{"image": rows["image"], "label": rows["label"]})
	}
	backbones, owned := make([]string, o.Of), make([][]int64, o.Of)
	backbones[c.ID], owned[c.ID] = t.Backbone, c.classes()
	meta, err := e.metadata(backbones, owned)
	if err != nil {
		return err
	}
	return safetensors.WritePrivateFile(path, m, meta)
}

// WriteState keeps what a client remembers in a file, with a checksum.
func WriteState(path string, s State) error { return writeSealed(path, s.Tensors(), nil) }

// ReadState reads what WriteState wrote and refuses a file that was changed since.
func ReadState(path string) (State, error) {
	m, _, err := readSealed(path)
	if err != nil {
		return State{}, err
	}
	return StateOf(m)
}

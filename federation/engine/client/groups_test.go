package client_test

import (
	"fmt"
	"testing"

	"promptfed/federation/engine/client"
	"promptfed/federation/engine/message"
	"promptfed/federation/engine/spec"
	"promptfed/federation/method"
	"promptfed/federation/methodtest"
	"promptfed/runtime/goldentest"
	"promptfed/runtime/optim"
)

// jobs returns jobs to train of new clients.
func jobs(clients []*spec.Client) (out []client.Job) {
	for _, c := range clients {
		out = append(out, client.Job{Client: c, State: client.Remembers(message.ClientState{}),
			Instruction: message.Instruction{Kind: message.Train, Total: len(clients)}})
	}
	return out
}

// TestGroups: clients with 9, 5, 6, 3, 12 and 4 examples take 3, 2, 2, 1, 3 and 1 steps of four. On one backbone, in
// groups of two, the clients with most steps share a group. On two alternating backbones (steps 3, 2, 3 and 2, 1, 1) no
// group has both backbones. FedPHA's private prompts have two alternating lengths, so their programs differ likewise.
func TestGroups(t *testing.T) {
	sizes := []int{9, 5, 6, 3, 12, 4}
	pha := buildMethod(t, "fedpha", nil, map[string]any{"local_tokens": []int{2, 4}})
	fl := buildMethod(t, "promptfl", nil, nil)
	for _, c := range []struct {
		m       method.Method
		clients []*spec.Client
		batch   int
		want    string
	}{
		{fl, methodtest.ClientsOfOneBackbone(sizes...), 1, "[[0] [1] [2] [3] [4] [5]]"},
		{fl, methodtest.ClientsOfOneBackbone(sizes...), 2, "[[0 4] [1 2] [3 5]]"},
		{fl, methodtest.ClientsOfOneBackbone(sizes...), 9, "[[0 4 1 2 3 5]]"},
		{fl, methodtest.Clients(sizes...), 2, "[[0 4] [2] [1 3] [5]]"},
		{pha, methodtest.ClientsOfOneBackbone(sizes...), 3, "[[0 4 2] [1 3 5]]"},
	} {
		e := &spec.Experiment{Method: c.m, Classes: methodtest.Classes, Template: "a {}.", Clients: c.clients,
			BatchClients: c.batch, Training: spec.Training{Epochs: 1, Batch: 4, Optim: optim.Config{Name: "sgd",
				LR: 0.1}}}
		w := client.NewWorker(e, client.Settings{})
		got, err := w.Groups(t.Context(), jobs(e.Clients), 1)
		goldentest.NoError(t, err)
		if fmt.Sprint(got) != c.want {
			t.Errorf("%s in groups of %d: %v, want %s", c.m, c.batch, got, c.want)
		}
		goldentest.NoError(t, w.Close())
	}
}

package engine

import (
	"errors"
	"promptfed/federation/engine/message"
	"promptfed/federation/engine/spec"
	"slices"
)

// participants are all clients as the server knows them.
func participantsOf(e *spec.Experiment, remote message.Remote) []message.Participant {
	var out []message.Participant
	if remote != nil {
		out = slices.Clone(remote.Participants())
		for i := range out {
			out[i].Task.Client, out[i].Task.Clients, out[i].Task.Classes = i, len(out), len(e.Classes)
		}
		return out
	}
	for _, c := range e.Clients {
		out = append(out, message.Participant{Joined: true, Task: e.Task(c), Domain: c.Domain})
	}
	return out
}

// checkParticipants finds what cannot work with clients elsewhere, and gives the first that joined.
func checkParticipants(e *spec.Experiment, participants []message.Participant) (message.Participant, error) {
	if e.Synthetic != nil {
		return message.Participant{}, errors.New("a server of clients elsewhere has no images of its own; " +
			"run the experiment in one place or leave out synthetic")
	}
	i := slices.IndexFunc(participants, func(m message.Participant) bool { return m.Joined })
	if i < 0 {
		return message.Participant{}, errors.New("no client has joined")
	}
	for _, m := range participants {
		if m.Joined {
			if err := m.Against(participants[i], e.Method); err != nil {
				return message.Participant{}, err
			}
		}
	}
	return participants[i], nil
}

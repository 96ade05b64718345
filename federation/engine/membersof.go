package engine

import (
	"errors"
	"slices"
)

// members are all clients as the server knows them.
func (e *Experiment) members(remote Remote) []Member {
	var out []Member
	if remote != nil {
		out = slices.Clone(remote.Members())
		for i := range out {
			out[i].Task.Client, out[i].Task.Clients, out[i].Task.Classes = i, len(out), len(e.Classes)
		}
		return out
	}
	for _, c := range e.Clients {
		out = append(out, Member{Joined: true, Task: e.task(c), Domain: c.Domain})
	}
	return out
}

// checkMembers finds what cannot work with clients elsewhere, and gives the first that joined.
func (e *Experiment) checkMembers(members []Member) (Member, error) {
	if e.Synthetic != nil {
		return Member{}, errors.New("a server of clients elsewhere has no images of its own; run the experiment in " +
			"one place or leave out synthetic")
	}
	i := slices.IndexFunc(members, func(m Member) bool { return m.Joined })
	if i < 0 {
		return Member{}, errors.New("no client has joined")
	}
	for _, m := range members {
		if m.Joined {
			if err := m.Against(members[i], e.Method); err != nil {
				return Member{}, err
			}
		}
	}
	return members[i], nil
}

// CheckExams finds what this side's clients could not be examined in.
func (e *Experiment) CheckExams() error { return e.checkExams() }

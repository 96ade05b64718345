package engine

import (
	"slices"

	"promptfed/federation/engine/message"
	"promptfed/federation/method"
)

// updateInfos updates the list of clients on other machines. A client that left stays known.
func (s *Server) updateInfos() {
	if s.Remote == nil {
		return
	}
	now := message.ClientInfos(s.participants())
	for id := range now {
		if now[id].Backbone == "" {
			now[id] = s.Global.Info(id)
		}
	}
	s.Global.Infos, s.Plan.Infos = now, now
}

// joinNew passes the method, between rounds, the clients that joined since the last call. The statistics of round 0 are
// then asked again, since new clients have not answered them.
func (s *Server) joinNew() error {
	s.updateInfos()
	var joined []int
	for id, p := range s.Global.Infos {
		if p.Backbone != "" && (id >= len(s.known) || p != s.known[id]) {
			joined = append(joined, id)
		}
	}
	s.known, s.statistics = s.Global.Infos, s.Method.Statistics(s.Global.Round)
	if len(joined) == 0 || s.Remote == nil {
		return nil
	}
	for _, q := range s.Method.Statistics(0) {
		if !slices.ContainsFunc(s.statistics, func(other method.Statistic) bool { return other.Name == q.Name }) {
			s.statistics = append(s.statistics, q)
		}
	}
	return s.Method.Join(&s.Global, joined)
}

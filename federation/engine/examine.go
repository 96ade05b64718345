package engine

import "context"

// examine gives the exams after the last round.
func (s *Server) examine(ctx context.Context, test Order, rec *Record) error {
	for _, name := range s.Exams {
		test.Exam = name
		replies, err := s.Cohort.Run(ctx, test)
		if err != nil {
			return err
		}
		if rec.Exams == nil {
			rec.Exams = map[string]Tested{}
		}
		rec.Exams[name] = tested(s.has, s.view, replies, test.Clients, s.Plan.Peers)
	}
	return nil
}

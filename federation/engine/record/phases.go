package record

// Phases is where the seconds of a round went. Clients run side by side: what encoding their messages and keeping their
// states on disk took is divided by the number of workers, and is no part of the phase that it happened in.
type Phases struct {
	Statistics float64 `json:"statistics"` // statistics rounds
	Training   float64 `json:"training"`   // of clients, with what is compiled in the first round
	Evaluation float64 `json:"evaluation"` // of any kind
	Server     float64 `json:"server"`     // aggregation, checks and records
	Messages   float64 `json:"messages"`   // encoding and decoding in this process
	Disk       float64 `json:"disk"`       // states of clients; the checkpoint comes after the round
}

package engine

// Remote is a Cohort whose clients are elsewhere: the server has no object of theirs, no data and no state, only what
// they say of themselves.
type Remote interface {
	Cohort
	// Members are all clients by number. One that never joined yet is not Joined.
	Members() []Member
	// Save gives what the cohort has to remember with a committed round, Load gives it back when a run goes on.
	Save() ([]byte, error)
	Load([]byte) error
	// Limited is what was refused of clients and what counts less than they said, since it was asked last.
	Limited() Limited
}

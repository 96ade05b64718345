package metrics

import "slices"

// Names of quantities.
const (
	Accuracy   = "accuracy" // mean over clients
	Weighted   = "weighted" // every test example counts the same, not every client
	F1         = "f1"
	Worst      = "worst"       // client
	Worst10    = "worst10"     // the lowest tenth of the clients
	ClientStd  = "client-std"  // over the clients of one run (population)
	OwnClasses = "own-classes" // only the classes compete that a client trains on
	ECE        = "ece"         // expected calibration error
	Domain     = "domain"
	DomainMean = "domain-mean"
	DomainStd  = "domain-std" // over the domains of one run (population)
	Set        = "set"
	SetMean    = "set-mean"
	HM         = "hm"             // base and new
	HM3        = "hm3"            // local, base and new
	Val        = "val"            // validation data
	New        = "new"            // clients that never trained, after some steps
	Honest     = "honest"         // clients that do not attack
	Success    = "attack-success" // of a backdoor
	Note       = "note"           // of a method or of what carries messages, such as epsilon
	Loss       = "loss"
	Bytes      = "bytes"
	Seconds    = "seconds"

	// By the end of a round, or of the first round with an accuracy.
	TotalBytes      = "total-bytes"
	TotalParameters = "total-parameters"
	Simulated       = "simulated" // seconds
	RoundsTo        = "rounds-to"
	BytesTo         = "bytes-to"
	ParametersTo    = "parameters-to"
	SimulatedTo     = "simulated-to"
)

// What stands behind the name of a quantity that is one of several.
const (
	ByName    = "NAME"
	BySteps   = "STEPS"
	ByPercent = "PERCENT"
)

// Unit is what a quantity is counted in.
type Unit string

// Units.
const (
	Percent Unit = "%" // values are shares of 1
	Byte    Unit = "bytes"
	Second  Unit = "s"
	Count   Unit = "count" // rounds, numbers in tensors
	Plain   Unit = ""
)

// Quantity is a number that the rounds of a run have.
type Quantity struct {
	Name     string
	Argument string // ByName and so on; empty where the quantity is the only one of its name
	Title    string
	Window   string // of rounds, unless another is asked for
	Unit     Unit
	// Evaluated tells that the number is of one evaluation, global or personal.
	Evaluated bool
	// Less tells that lower values are better: costs, deviations and losses. A method that trains nothing, sends
	// nothing or treats all clients equally badly has the lowest, so a low value alone does not make a method the best.
	Less bool
}

// quantities are all that there are, in the order of columns of tables.
var quantities = []Quantity{
	{Accuracy, "", "accuracy", Last, Percent, true, false},
	{Weighted, "", "accuracy weighted by test examples", Last, Percent, true, false},
	{F1, "", "macro-F1", Last, Percent, true, false},
	{Worst, "", "accuracy of the worst client", Last, Percent, true, false},
	{Worst10, "", "accuracy of the worst tenth of the clients", Last, Percent, true, false},
	{ClientStd, "", "standard deviation over clients", Last, Percent, true, true},
	{OwnClasses, "", "accuracy among each client's own classes", Last, Percent, true, false},
	{ECE, "", "expected calibration error", Last, Percent, true, true},
	{Domain, ByName, "accuracy in the domain", Last, Percent, true, false},
	{DomainMean, "", "mean over domains", Last, Percent, true, false},
	{DomainStd, "", "standard deviation over domains", Last, Percent, true, true},
	{Set, ByName, "accuracy on the evaluation set", Last, Percent, true, false},
	{SetMean, "", "mean over other data sets and left-out domains", Last, Percent, true, false},
	{HM, "", "harmonic mean of base and new", Last, Percent, true, false},
	{HM3, "", "harmonic mean of local, base and new", Last, Percent, true, false},
	{Val, "", "accuracy on validation data", Last, Percent, true, false},
	{New, BySteps, "accuracy of clients that never trained, by number of local steps:", Last, Percent, false, false},
	{Honest, "", "accuracy of clients that do not attack", Last, Percent, true, false},
	{Success, "", "images with the trigger that are classified as the backdoor's target", Last, Percent, true, true},
	{Note, ByName, "value noted in the rounds:", Last, Plain, false, true},
	{Loss, "", "training loss", Last, Plain, false, true},
	{Bytes, "", "bytes per round, all clients, up and down", All, Byte, false, true},
	{Seconds, "", "seconds per round", All, Second, false, true},
	{TotalBytes, "", "bytes of all rounds so far, up and down", Last, Byte, false, true},
	{TotalParameters, "", "parameters sent in all rounds so far, up and down", Last, Count, false, true},
	{Simulated, "", "simulated seconds since the start", Last, Second, false, true},
	{RoundsTo, ByPercent, "rounds to an accuracy (%) of", First, Count, true, true},
	{BytesTo, ByPercent, "bytes to an accuracy (%) of", First, Byte, true, true},
	{ParametersTo, ByPercent, "parameters to an accuracy (%) of", First, Count, true, true},
	{SimulatedTo, ByPercent, "simulated seconds to an accuracy (%) of", First, Second, true, true},
}

// Quantities lists all quantities in the order of columns of tables. Tables, cards, pages, curves and what is sent to
// other programs take theirs from here.
func Quantities() []Quantity { return slices.Clone(quantities) }

// Find gives a quantity by its name; false where there is none.
func Find(name string) (Quantity, bool) {
	i := slices.IndexFunc(quantities, func(q Quantity) bool { return q.Name == name })
	if i < 0 {
		return Quantity{}, false
	}
	return quantities[i], true
}

// Form is the name as it is asked for, with what stands behind it: f1, domain:NAME.
func (q Quantity) Form() string {
	if q.Argument == "" {
		return q.Name
	}
	return q.Name + ":" + q.Argument
}

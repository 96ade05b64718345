package results

import (
	"strconv"

	"promptfed/federation/engine/metrics"
)

func totalBytes(r Round) (float64, bool)      { return r.Sent.Bytes, true }
func totalParameters(r Round) (float64, bool) { return r.Sent.Parameters, r.Sent.Parameters > 0 }

func simulated(r Round) (float64, bool) {
	if r.Simulated == nil {
		return 0, false
	}
	return r.Simulated.Seconds, true
}

// sent read quantities of communication and of simulated time.
var sent = map[string]reader{
	metrics.TotalBytes:      plain(totalBytes),
	metrics.TotalParameters: plain(totalParameters),
	metrics.Simulated:       plain(simulated),
	metrics.RoundsTo:        reached(func(r Round) (float64, bool) { return float64(r.Round + 1), true }),
	metrics.BytesTo:         reached(totalBytes),
	metrics.ParametersTo:    reached(totalParameters),
	metrics.SimulatedTo:     reached(simulated),
}

func plain(of func(r Round) (float64, bool)) reader {
	return func(r Round, _ string) (float64, bool) { return of(r) }
}

// reached is a number of the rounds with an accuracy, in percent, or a higher one.
func reached(of func(r Round) (float64, bool)) reader {
	return func(r Round, target string) (float64, bool) {
		percent, err := strconv.ParseFloat(target, 64)
		if err != nil || r.Evaluation == nil || 100*r.Accuracy < percent {
			return 0, false
		}
		return of(r)
	}
}

package experiment

import (
	"errors"
	"slices"
	"strconv"

	"promptfed/federation/configtags"
	"promptfed/federation/data"
	"promptfed/federation/data/partition"
	"promptfed/federation/method"
	"promptfed/federation/methods"
)

// Reproduce is the section reproduce: known defects of published code, reproduced on purpose to show what they do to
// its numbers (docs/pitfalls.md). A run with any of them says so wherever its numbers are shown.
type Reproduce struct {
	Labels     string `config:"labels" in:"correct|misaligned"`
	ClassNames string `config:"class_names" in:"correct|shuffled"`
}

func (Reproduce) LongHelp() map[string]string {
	return map[string]string{
		"labels": "correct, or misaligned: reproduces a known defect of published code; a client has its own labels, " +
			"but the first images of its domain's list",
		"class_names": "correct, or shuffled: reproduces a known defect of published code; class names are in a " +
			"random order that labels do not follow",
	}
}

const (
	asMeant    = "correct"
	misaligned = "misaligned"
	shuffled   = "shuffled"
)

func (r Reproduce) check(d DataSection) error {
	return errors.Join(configtags.Check("reproduce.", r), configtags.Need(r.Labels != misaligned ||
		d.Split == "given" && d.ValShare <= 0, "reproduce.labels", "misaligned is a defect of sets with lists of "+
		"their own for every split; set data.split to given and data.val_share to 0"))
}

// Reproduces lists the known defects of published code that a configuration reproduces on purpose, as "KEY: VALUE".
func (c Config) Reproduces() []string {
	var out []string
	if c.Reproduce.Labels == misaligned {
		out = append(out, "reproduce.labels: "+misaligned)
	}

	if c.Reproduce.ClassNames == shuffled {
		out = append(out, "reproduce.class_names: "+shuffled)
	}

	if c.Train.State == sharedState {
		out = append(out, "train.optimizer_state: "+sharedState)
	}

	if m, err := methods.Build(c.Method, c.With, c.Options); err == nil {
		out = append(out, methods.Reproduces(m)...)
	}

	return out
}

// shuffleNames puts the class names of texts into a random order, as a Python set literal does in every process; labels
// keep their order.
func (r Reproduce) shuffleNames(s *data.Set, seed uint64) {
	if r.ClassNames != shuffled {
		return
	}
	s.Classes = slices.Clone(s.Classes)
	method.Rand(seed, "reproduce/class_names").Shuffle(len(s.Classes), func(i, j int) {
		s.Classes[i], s.Classes[j] = s.Classes[j], s.Classes[i]
	})
}

// misalign gives every client its own labels in random order, with the first images of its domain's list, although
// other clients may have those images: in the published code, a client's indices select its labels only. The set's
// lists become those of the clients, one after another, and the clients' indices follow.
func (r Reproduce) misalign(s *data.Set, clients []partition.Client, seed uint64) {
	if r.Labels != misaligned {
		return
	}

	for _, sp := range s.Splits() {
		var all []data.Example
		for k := range clients {
			dealt := clients[k].In(sp.Name)
			random := method.Rand(seed, "reproduce/labels", sp.Name, strconv.Itoa(k)).Perm(len(*dealt))
			domains := map[int]bool{}
			for _, i := range *dealt {
				domains[(*sp.Examples)[i].Domain] = true
			}

			now, from := make([]int, len(*dealt)), 0
			for i := range now {
				for !domains[(*sp.Examples)[from].Domain] {
					from++
				}
				e := (*sp.Examples)[from]
				e.Label = (*sp.Examples)[(*dealt)[random[i]]].Label
				now[i], all, from = len(all), append(all, e), from+1
			}

			*dealt = now
		}

		*sp.Examples = all
	}
}

package partition

import (
	"fmt"
	"strconv"

	"promptfed/federation/data"
	"promptfed/federation/method"
)

// Split splits the examples of a set among clients, as a function of config, shots and the seed alone, and keeps shots
// training examples per client and class (0: all). Every example goes to exactly one client, except those that the kind
// leaves unused or repeats, as its About says. Domain kinds order the clients by domain; a domain gets clients/domains
// clients, and the remainder goes to domains drawn at random, one each. A pooled set is cut 60/20/20 inside each
// client. Split returns an error that says what to change if a client is left without training or test examples, if
// there are too few classes or domains, or if no draw succeeds.
func Split(config Config, set *data.Set, shots int, seed uint64) ([]Client, error) {
	kind, err := check(config, set)
	if err != nil {
		return nil, err
	}

	job := newJob(config, set, shots, seed)
	split := kind.allocate
	if config.Code {
		split, err = kind.published, job.seedCode(kind)
	}

	var out []Client
	if err == nil {
		out, err = split(job)
	}

	if err == nil {
		err = checkComplete(kind, out)
	}

	if err != nil {
		return nil, fmt.Errorf("partition %s: %w", config.Kind, err)
	}

	if shots > 0 && !(config.Code && kind.drawsShots && set.Pool == nil) {
		for i := range out {
			out[i].Train = drawShots(out[i].Train, job.lists[0].label, shots,
				method.Rand(job.seed, "shots", strconv.Itoa(i)).Uint64())
		}
	}

	return out, nil
}

// allocator splits the lists of a job among its clients.
type allocator func(j *job, seed uint64) ([]shares, error)

// overall splits the whole set, whatever the domains.
func overall(share allocator) func(*job) ([]Client, error) {
	return func(j *job) ([]Client, error) {
		got, err := share(j, j.kindSeed(0))
		return j.newClients(got, "", 0), err
	}
}

// eachDomain splits each domain separately.
func eachDomain(share allocator) func(*job) ([]Client, error) {
	return func(job *job) ([]Client, error) {
		count, err := job.clientsPerDomain(job.distinctDomains())
		if err != nil {
			return nil, err
		}
		var out []Client
		for i, d := range job.domains {
			got, err := share(job.inDomain(d, count[i]), job.kindSeed(d))
			if err != nil {
				return nil, fmt.Errorf("domain %s: %w", job.set.Domains[d], err)
			}
			out = append(out, job.newClients(got, job.set.Domains[d], len(out))...)
		}
		return out, nil
	}
}

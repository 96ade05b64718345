"""Golden numbers for federation/pyrand and federation/partition: draws of Python's random and NumPy's legacy generator, and
partitions by the algorithms of the public federated prompt learning code, written here from their description in plain
Python and NumPy.

Run from the module root: /usr/bin/python3 tools/golden/partition.py
Label lists are the formula labels() below, which the Go tests repeat.
"""
import hashlib
import json
import random

import numpy as np

DRAWS = "federation/pyrand/testdata/draws.json"


def digest(words):
    """Thousands of draws in a line: the SHA-256 of their texts, one a line. Floats are written as their bits in hex."""
    return hashlib.sha256("".join(f"{w}\n" for w in words).encode()).hexdigest()


def floats(values):
    return ["%016x" % int(np.float64(v).view(np.uint64)) for v in values]


def record(values, show=12):
    """The first draws to look at, and the digest of all."""
    values = list(values)
    texts = floats(values) if isinstance(values[0], float) else [str(int(v)) for v in values]
    return {"n": len(values), "first": texts[:show], "sha256": digest(texts)}


SAMPLES = [(20, 3), (21, 5), (22, 5), (85, 6), (86, 6), (100, 16), (277, 16), (278, 16), (500, 21), (1045, 100), (5000, 340),
           (5000, 341), (60, 60)]


def python_draws(seed):
    r = random.Random(seed)
    out = {"random": record(r.random() for _ in range(3000)),
           "below": record(r.randrange(n) for n in range(1, 3001)),
           "bits": record(r.getrandbits(k) for k in range(1, 65)),
           "uniform": record(r.uniform(-2.5, 7.25) for _ in range(1000))}
    shuffled = list(range(1500))
    r.shuffle(shuffled)
    out["shuffle"] = record(shuffled)
    out["choice"] = record(r.choice(shuffled) for _ in range(1000))
    # n and k on both sides of the rule that tells the two ways to sample apart
    out["sample"] = record(v for n, k in SAMPLES for v in r.sample(range(n), k))
    out["after"] = record([r.random()])
    return out


GAMMAS = [0.001, 0.05, 0.1, 0.3, 0.5, 0.99, 1.0, 1.01, 2.5, 10.0, 300.0]
DIRICHLETS = [(0.01, 10), (0.05, 500), (0.1, 20), (0.5, 100), (1.0, 3), (10.0, 5), (0.3, 1)]
CATEGORIES = [(0.3, 20), (10.0, 5), (1.0, 2), (0.05, 50)]
SUMS = list(range(1, 40)) + [127, 128, 129, 136, 137, 255, 256, 300, 1000]


def numpy_draws(seed):
    r = np.random.RandomState(seed)
    out = {"random": record(float(v) for v in r.random_sample(3000)),
           "uniform": record(float(v) for v in r.uniform(0.4, 0.6, size=1000)),
           "randint": record(r.randint(n) for n in range(1, 3001)),
           "choice": record(r.choice(np.arange(n)) for n in range(1, 500)),
           "wide": record(r.randint(2**40 + 12345, size=200, dtype=np.int64))}
    shuffled = np.arange(1500)
    r.shuffle(shuffled)
    out["shuffle"] = record(shuffled)
    as_list = list(range(77))
    r.shuffle(as_list)
    out["shuffle list"] = record(as_list)
    out["permutation"] = record(r.permutation(1000))
    out["choice without"] = record(r.choice(1000, 100, replace=False))
    out["gauss"] = record(float(v) for v in r.standard_normal(3001))
    out["exponential"] = record(float(v) for v in r.standard_exponential(3000))
    out["gamma"] = record(float(r.standard_gamma(shape)) for shape in GAMMAS for _ in range(2000))
    out["dirichlet"] = record(float(v) for alpha, k in DIRICHLETS for _ in range(20) for v in r.dirichlet([alpha] * k))
    picks = []
    for alpha, k in CATEGORIES:
        for _ in range(10):
            p = r.dirichlet([alpha] * k)
            picks += [int(np.argmax(r.multinomial(1, p))) for _ in range(100)]
    out["category"] = record(picks)
    out["sum"] = record(float(r.standard_gamma(0.3, size=n).sum()) for n in SUMS)
    out["after"] = record([float(r.random_sample())])
    return out


if __name__ == "__main__":
    draws = {"python": {str(s): python_draws(s) for s in [0, 1, 2023, 12345, 2**32 + 5, 2**63 + 17]},
             "numpy": {str(s): numpy_draws(s) for s in [0, 1, 42, 12345, 2**32 - 1]}}
    with open(DRAWS, "w") as f:
        json.dump(draws, f, indent=0)

"""Golden numbers for federation/data/partition/pyrand and federation/data/partition: draws of Python's random and NumPy's legacy generator, and
partitions by the algorithms of the public federated prompt learning code, written here from their description in plain
Python and NumPy.

Run from the module root: /usr/bin/python3 tools/golden/partition.py
Label lists are the formula labels() below, which the Go tests repeat.
"""
import hashlib
import json
import random

import numpy as np

DRAWS = "federation/data/partition/pyrand/testdata/draws.json"


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


PARTITIONS = "federation/data/partition/testdata/code.json"


def mixed(i, salt):
    """The formula of labels and domains: a multiplicative hash of the place in the list."""
    return ((i + salt) * 2654435761 % 2**32) >> 9


def labels(n, classes, salt):
    return [mixed(i, salt) % classes for i in range(n)]


def domains(n, count, salt):
    return [mixed(i, salt + 7919) % count for i in range(n)]


def even(values, parts):
    """numpy.array_split, and back to lists."""
    return [part.tolist() for part in np.array_split(np.asarray(values, dtype=np.int64), parts)]


def homo(c, train, test):
    np.random.seed(c["seed"])
    return [even(np.random.permutation(len(y)), c["clients"]) for y in (train, test)]


def dirichlet_cut(y, classes, clients, beta, min_size, reseed=None):
    """Class by class, train and test at the same proportions, again until everybody has enough; None when reseeding makes
    every further try the same."""
    room = len(y[0]) / clients
    while True:
        held = [[[] for _ in range(clients)] for _ in y]
        for k in range(classes):
            members = [np.where(np.asarray(part) == k)[0] for part in y]
            if reseed is not None:
                np.random.seed(reseed)
            for m in members:
                np.random.shuffle(m)
            if beta == 0:
                pieces = [np.array_split(m, clients) for m in members]
            else:
                p = np.random.dirichlet(np.repeat(beta, clients))
                p = np.array([q * (len(h) < room) for q, h in zip(p, held[0])])
                p = p / p.sum()
                pieces = [np.split(m, (np.cumsum(p) * len(m)).astype(int)[:-1]) for m in members]
            for l, piece in enumerate(pieces):
                for j in range(clients):
                    held[l][j] += piece[j].tolist()
        if min(len(h) for part in held for h in part) >= min_size:
            return held
        if reseed is not None:
            return None


def label_dirichlet(c, train, test):
    np.random.seed(c["seed"])
    return dirichlet_cut([train, test], c["classes"], c["clients"], c["beta"], c["min_size"])


def domain_dirichlet(c, train, test):
    np.random.seed(c["seed"])
    d = c["domains"]
    count = [c["clients"] // d] * d
    for i in np.random.randint(d, size=c["clients"] % d):
        count[i] += 1
    held = [[], []]
    places = [domains(len(y), d, c["salt"] + l) for l, y in enumerate((train, test))]
    for i in range(d):
        inside = [[j for j, e in enumerate(p) if e == i] for p in places]
        y = [[lab[j] for j in ins] for lab, ins in zip((train, test), inside)]
        got = dirichlet_cut(y, c["classes"], count[i], c["beta"] if c["kind"] == "domain-dirichlet" else 0, c["min_size"], reseed=0)
        if got is None:
            return None
        for l in range(2):
            held[l] += [[inside[l][j] for j in own] for own in got[l]]
    return held


def label_uniform(c, train, test):
    np.random.seed(c["seed"])
    random.seed(c["seed"])
    K, n, num = c["classes"], c["clients"], c["own"]
    assert num * n % K == 0
    each = num * n // K
    left, weights = [each] * K, []
    for _ in range(K):
        w = np.random.uniform(0.4, 0.6, size=each)
        weights.append((w / w.sum()).tolist())
    own = []
    for _ in range(n):
        mine = []
        for _ in range(num):
            mine.append(int(np.random.choice(np.where(np.array(left) == max(left))[0])))
            left[mine[-1]] -= 1
        own.append([(k, weights[k].pop()) for k in mine])
    out = []
    rest = [[np.where(np.asarray(y) == k)[0] for k in range(K)] for y in (train, test)]
    for members in rest:
        for m in members:
            random.shuffle(m)
    for members in rest:
        size = [len(m) for m in members]
        held = []
        for mine in own:
            got = []
            for k, p in mine:
                take = int(size[k] * p)
                got += members[k][:take].tolist()
                members[k] = members[k][take:]
            held.append(got)
        out.append(held)
    return out


def label_classes(c, train, test):
    np.random.seed(c["seed"])
    random.seed(c["seed"])
    K, n = c["classes"], c["clients"]
    own = []
    for i in range(n):
        mine = [i % K]
        while len(mine) < c["own"]:
            k = random.randint(0, K - 1)
            if k not in mine:
                mine.append(k)
        own.append(mine)
    held = [[[] for _ in range(n)] for _ in range(2)]
    for k in range(K):
        owners = [i for i in range(n) if k in own[i]]
        members = [np.where(np.asarray(y) == k)[0] for y in (train, test)]
        for m in members:
            np.random.shuffle(m)
        for l, m in enumerate(members):
            for i, piece in zip(owners, np.array_split(m, len(owners))):
                held[l][i] += piece.tolist()
    return held


def coarse_of(k, supers):
    return (k * 7 + 3) % supers


def pachinko(c, train, test):
    random.seed(c["seed"])
    pick = random.Random(12345)
    np.random.seed(12345)
    y = list(train) + list(test)
    pool = {k: [] for k in range(c["classes"])}
    for i in pick.sample(list(range(len(y))), len(y)):
        pool[y[i]].append(i)
    open_supers = list(range(c["supers"]))
    fine = {s: [k for k in range(c["classes"]) if coarse_of(k, c["supers"]) == s] for s in open_supers}

    def drop(w, at):
        w = np.delete(w, at)
        w /= w.sum()
        return w

    held = []
    for _ in range(c["clients"]):
        mass = np.random.dirichlet(c["beta"] * np.ones(len(open_supers)))
        inside = {s: np.random.dirichlet(10 * np.ones(len(fine[s]))) for s in open_supers}
        mine = []
        for _ in range(len(y) // c["clients"]):
            at = int(np.argmax(np.random.multinomial(1, mass)))
            s = open_supers[at]
            f = int(np.argmax(np.random.multinomial(1, inside[s])))
            k = fine[s][f]
            i = pick.choice(pool[k])
            mine.append(i)
            pool[k].remove(i)
            if not pool[k]:
                fine[s].remove(k)
                inside[s] = drop(inside[s], f)
                if not fine[s]:
                    open_supers.remove(s)
                    mass = drop(mass, at)
        held.append(mine)
    random.shuffle(held)
    n = len(train)
    return [[[i for i in mine if i < n] for mine in held], [[i - n for i in mine if i >= n] for mine in held]]


def shared_classes(c, y):
    """Who owns which classes in the few-shot split, for a fresh seed of 2023: (classes of each client, repeated ones, folds)."""
    n, classes, rate = c["clients"], max(y) + 1, c["repeat"]
    random.seed(2023)
    order = list(range(classes))
    random.shuffle(order)
    if rate == 0:
        per = int(round(classes / n))
        return [order[i * per:] if i == n - 1 else order[i * per:(i + 1) * per] for i in range(n)], [], 0
    repeated = int(rate * classes)
    common, alone = order[:repeated], order[repeated:]
    per = int(round((classes - repeated) / n))
    folds = int(n / c["shots"])
    member = {}
    if folds > 0:
        per_fold, width = int(round(n / folds)), int(round(repeated / folds))
        people = list(range(n))
        random.shuffle(people)
        for k in range(folds):
            for i in people[k * per_fold:min((k + 1) * per_fold, n)]:
                member[i] = k
    own = []
    for i in range(n):
        if folds > 0:
            mine = []
            if i in member:
                k = member[i]
                mine = common[k * width:] if k == folds - 1 else common[k * width:(k + 1) * width]
        else:
            mine = list(common)
        own.append(mine + (alone[i * per:] if i == n - 1 else alone[i * per:(i + 1) * per]))
    return own, common, folds


def tracker(y):
    out = {}
    for i, k in enumerate(y):
        out.setdefault(k, []).append(i)
    return out


def fewshot_train(c, y, iid):
    own, common, _ = shared_classes(c, y)
    held = []
    for i in range(c["clients"]):
        mine = []
        for k, items in tracker(y).items():
            if not iid and k not in own[i]:
                continue
            if c["repeat"] == 0:
                mine += random.sample(items, c["shots"]) if len(items) >= c["shots"] else items
            elif k in common:
                mine += random.sample(items, max(int(c["shots"] / c["clients"]), 1))
            else:
                mine += random.sample(items, c["shots"])
        held.append(mine)
    return held


def all_of_classes(c, y, iid):
    n = c["clients"]
    own, common, folds = shared_classes(c, y)
    order, per = {}, {}
    for k, items in tracker(y).items():
        order[k] = list(range(len(items)))
        per[k] = int(round(len(items) / (n / folds))) if folds > 0 else int(round(len(items) / n))
        random.shuffle(order[k])
    held = []
    for i in range(n):
        mine = []
        for k, items in tracker(y).items():
            part = set(order[k][i * per[k]:min((i + 1) * per[k], len(items))])
            if iid:
                mine += [v for j, v in enumerate(items) if j in part]
            elif k in own[i]:
                if c["repeat"] > 0 and k in own[i][:len(common)]:
                    mine += [v for j, v in enumerate(items) if j in part]
                else:
                    mine += items
        held.append(mine)
    return held


def pathological(c, train, test):
    return [fewshot_train(c, train, False) if c["shots"] else all_of_classes(c, train, False), all_of_classes(c, test, False)]


def iid_shots(c, train, test):
    return [fewshot_train(c, train, True), all_of_classes(c, test, True)]


def lds(c, train, test):
    np.random.seed(c["seed"])
    d = c["domains"]
    share = np.random.dirichlet([c["beta"]] * d, c["classes"]).T
    where = [domains(len(y), d, c["salt"] + l) for l, y in enumerate((train, test))]
    held = [[], []]
    for i in range(d):
        if c["pooled"]:
            # the pool is train then test; 70 % of a permutation of the domain train, in the order of the permutation
            y = list(train) + list(test)
            inside = [j for j, e in enumerate(where[0] + where[1]) if e == i]
            order = np.random.permutation(len(inside))
            cut = int(0.7 * len(inside))
            mine, tested = [inside[j] for j in order[:cut]], [inside[j] for j in order[cut:]]
        else:
            y = train
            mine = [j for j, e in enumerate(where[0]) if e == i]
            tested = [j for j, e in enumerate(where[1]) if e == i]
        got = []
        for k in range(c["classes"]):
            members = [j for j in mine if y[j] == k]
            got += members[:int(share[i][k] * len(members))]
        held[0].append(got)
        held[1].append(tested)
    return held


ALGORITHMS = {"iid": homo, "dirichlet": label_dirichlet, "domain": domain_dirichlet, "domain-dirichlet": domain_dirichlet,
              "labeluni": label_uniform, "classes": label_classes, "pachinko": pachinko, "pathological": pathological,
              "iid-shots": iid_shots, "lds": lds}


def partition_case(kind, classes, clients, train, test, seed=1, salt=0, domains=0, supers=0, beta=0.0, min_size=2, own=0, shots=0,
                   repeat=0.0, pooled=False):
    c = dict(kind=kind, classes=classes, clients=clients, train=train, test=test, seed=seed, salt=salt, domains=domains,
             supers=supers, beta=beta, min_size=min_size, own=own, shots=shots, repeat=repeat, pooled=pooled)
    got = ALGORITHMS[kind](c, labels(train, classes, salt), labels(test, classes, salt + 1))
    if got is None:
        return dict(c, never=True)
    lines = [" ".join(str(int(i)) for i in sorted(own)) for part in got for own in part]
    return dict(c, sizes=[[len(own) for own in part] for part in got], sha256=digest(lines),
                first=[sorted(int(i) for i in got[0][0])[:20], sorted(int(i) for i in got[1][0])[:20]])


def partitions():
    out = []
    for seed in (0, 1, 42):
        out += [partition_case("iid", 5, 7, 200, 61, seed=seed),
                partition_case("dirichlet", 10, 10, 3000, 800, seed=seed, beta=0.5, min_size=10),
                partition_case("dirichlet", 10, 5, 2000, 500, seed=seed, beta=0.1, min_size=2, salt=9),
                partition_case("dirichlet", 10, 20, 5000, 2000, seed=seed, beta=0.3, min_size=10, salt=3),
                partition_case("dirichlet", 100, 100, 20000, 10000, seed=seed, beta=0.5, min_size=10),
                partition_case("dirichlet", 4, 3, 90, 40, seed=seed, beta=0.02, min_size=0),
                partition_case("dirichlet", 6, 2, 200, 80, seed=seed, beta=1e-5, min_size=0),
                partition_case("domain-dirichlet", 6, 6, 900, 300, seed=seed, domains=3, beta=0.5),
                partition_case("domain-dirichlet", 31, 6, 3292, 813, seed=seed, domains=3, beta=0.5),
                partition_case("domain-dirichlet", 65, 11, 6000, 1500, seed=seed, domains=4, beta=0.3, salt=5),
                partition_case("domain-dirichlet", 10, 20, 1500, 600, seed=seed, domains=4, beta=0.1, min_size=2),
                partition_case("domain", 7, 9, 500, 200, seed=seed, domains=4),
                partition_case("labeluni", 10, 10, 1500, 400, seed=seed, own=2),
                partition_case("labeluni", 100, 20, 6000, 2000, seed=seed, own=10),
                partition_case("labeluni", 3, 6, 300, 100, seed=seed, own=2, salt=4),
                partition_case("classes", 10, 12, 1500, 400, seed=seed, own=3),
                partition_case("classes", 10, 10, 1500, 400, seed=seed, own=1),
                partition_case("pachinko", 20, 10, 1600, 400, seed=seed, supers=5, beta=0.3),
                partition_case("pachinko", 100, 50, 5000, 1000, seed=seed, supers=20, beta=0.5),
                partition_case("lds", 10, 4, 2000, 600, seed=seed, domains=4, beta=0.5),
                partition_case("lds", 10, 4, 2000, 600, seed=seed, domains=4, beta=0.5, pooled=True)]
    for classes, clients in ((100, 10), (101, 10), (102, 10), (47, 10), (37, 10), (12, 4)):
        for shots in (0, 1, 2, 16):
            out.append(partition_case("pathological", classes, clients, 25 * classes, 8 * classes, shots=shots))
    out.append(partition_case("domain-dirichlet", 4, 12, 400, 200, domains=2, beta=0.05, min_size=10))
    out += [partition_case("pathological", 37, 20, 2944, 3669, shots=s, repeat=0.1) for s in (2, 4, 8, 16)]
    out += [partition_case("pathological", 20, 4, 600, 300, shots=s, repeat=0.5) for s in (1, 3, 8)]
    out += [partition_case("iid-shots", 10, 5, 300, 100, shots=s) for s in (1, 4, 40)]
    return out


if __name__ == "__main__":
    draws = {"python": {str(s): python_draws(s) for s in [0, 1, 2023, 12345, 2**32 + 5, 2**63 + 17]},
             "numpy": {str(s): numpy_draws(s) for s in [0, 1, 42, 12345, 2**32 - 1]}}
    with open(DRAWS, "w") as f:
        json.dump(draws, f, indent=0)
    with open(PARTITIONS, "w") as f:
        f.write("[\n" + ",\n".join(json.dumps(c) for c in partitions()) + "\n]\n")

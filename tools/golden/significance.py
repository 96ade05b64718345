"""Golden numbers for tools/lab/stats: paired tests by scipy, Holm's correction by statsmodels, bootstrap intervals by numpy.

Run from the module root, with pip's scipy and statsmodels: python3 tools/golden/significance.py
"""
import json
import os
import warnings

import numpy as np
from scipy import stats
from statsmodels.stats.multitest import multipletests

warnings.filterwarnings("ignore")
OUT = "tools/lab/stats/testdata"
os.makedirs(OUT, exist_ok=True)
rng = np.random.default_rng(7)


def differences():
    """Sizes small and large, with and without ties and zeros; multiples of 1/64 are exact, so ties are ties."""
    yield "three", rng.normal(.5, 1, 3)
    yield "six of one sign", np.abs(rng.normal(0, 1, 6))
    yield "nine, a textbook's size", rng.normal(.4, 1, 9)
    yield "twelve with ties", rng.integers(-3, 6, 12) / 64
    yield "fifteen with zeros and ties", rng.integers(-2, 4, 15) / 64
    yield "fifty", rng.normal(.2, 1, 50)
    yield "three hundred", rng.normal(.1, 1, 300)
    yield "three hundred with zeros and ties", rng.integers(-8, 11, 300) / 64


def exact(d):
    """p of the signed-rank test by counting all signs, one bit each: what the distribution over signs means."""
    d = d[d != 0]
    ranks = stats.rankdata(np.abs(d))
    plus = ranks[d > 0].sum()
    less = min(plus, ranks.sum() - plus)
    signs = (np.arange(2 ** len(d))[:, None] >> np.arange(len(d))) & 1
    return min(1.0, 2 * np.mean(signs @ ranks <= less + 1e-9))


cases = []
for name, d in differences():
    t = stats.ttest_1samp(d, 0)
    nonzero = d[d != 0]
    tied = len(set(np.abs(nonzero))) < len(nonzero)
    if len(nonzero) > 200:
        w = stats.wilcoxon(d, zero_method="wilcox", method="asymptotic", correction=False)
    elif not tied:
        w = stats.wilcoxon(nonzero, method="exact")
    else:
        w = stats.wilcoxon(nonzero, method="asymptotic", correction=False)
    p = float(w.pvalue) if not tied or len(nonzero) > 200 else exact(d)
    if not tied and len(nonzero) <= 16:
        assert abs(p - exact(d)) < 1e-12
    ranks = stats.rankdata(np.abs(nonzero))
    cases.append({"name": name, "differences": d.tolist(), "t": float(t.statistic), "t_p": float(t.pvalue),
                  "w": float(w.statistic), "w_p": p, "cohen": float(d.mean() / d.std(ddof=1)),
                  "rank_biserial": float((ranks[nonzero > 0].sum() - ranks[nonzero < 0].sum()) / ranks.sum())})

holm = []
for p in ([.01, .04, .03, .005], [.5, .9, .02], [.04], [.2, .2, .2, .001, .001], [.9, .8, .7]):
    holm.append({"p": p, "holm": multipletests(p, method="holm")[1].tolist()})


def interval(clusters, n):
    """Two-stage bootstrap of the mean, percentiles: runs with replacement, then clients of each with replacement."""
    means = []
    for _ in range(n):
        drawn = [clusters[i] for i in rng.integers(0, len(clusters), len(clusters))]
        means.append(np.concatenate([c[rng.integers(0, len(c), len(c))] for c in drawn]).mean())
    return np.quantile(means, [.025, .975]).tolist()


bootstrap = []
for name, clusters in (("one run of forty clients", [rng.normal(.3, 1, 40)]),
                       ("eight runs of ten clients, alike in a run", [m + rng.normal(0, .2, 10) for m in rng.normal(.3, 1, 8)]),
                       ("twelve runs", [rng.normal(.3, 1, 1) for _ in range(12)])):
    bootstrap.append({"name": name, "clusters": [c.tolist() for c in clusters], "interval": interval(clusters, 40000)})

with open(f"{OUT}/significance.json", "w") as f:
    json.dump({"cases": cases, "holm": holm, "bootstrap": bootstrap}, f, indent=1)

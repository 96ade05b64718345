"""Golden numbers for federation/privacy by numerical integration (python3-scipy), no accountant involved.

Run from the module root: python3 tools/golden/privacy_exact.py
Each case is a run in which clients drop out: rounds with a noise (on the sum, over the clip norm) and a rate of their own.

- divergence: of all rounds together at some orders, the sum over rounds of the integral of p^a q^(1-a), for the
  pair of densities that is worst: with Poisson sampling (1-q) N(0,s) + q N(1,s) against N(0,s) (Mironov, Talwar and Zhang 2019,
  theorems 4 and 5), without sampling N(0,s) against N(2,s) for one update of norm 1 replaced by its opposite. Of fixed-size
  sampling no worst pair is known; here it is the one where all other updates are zero, (1-q) N(0,s) + q N(1,s) against
  (1-q) N(0,s) + q N(-1,s), which any bound must be above.
- epsilon: the least for which the hockey-stick divergence of the product of all rounds is at most delta, in both directions, by
  distributions of the privacy loss on a grid, rounded up, and convolved. Without sampling that of one Gaussian of the
  same total instead, by Balle and Wang 2018, theorem 8.
"""
import json
import math

import numpy as np
from scipy.optimize import brentq
from scipy.signal import fftconvolve
from scipy.special import logsumexp
from scipy.stats import norm

ORDERS = [1.5, 2, 3, 4.7, 8, 16, 32]


def parts(kind, q):
    """The two densities' weights by mean: [(weight, mean)] each."""
    if kind == "poisson":
        return [(1 - q, 0), (q, 1)], [(1, 0)]
    if q == 1:
        return [(1, 1)], [(1, -1)]
    return [(1 - q, 0), (q, 1)], [(1 - q, 0), (q, -1)]


def renyi(kind, s, q, a):
    """The larger of both directions, by the trapezoidal rule, which is exact to rounding for such smooth integrands."""
    def log_density(mix, x):
        return logsumexp([math.log(w) + norm.logpdf(x, m, s) for w, m in mix if w], axis=0)

    far = 2 * a + 14 * s
    x = np.arange(-far, far, s / 64)
    p, r = (log_density(mix, x) for mix in parts(kind, q))
    return max((logsumexp(a * f + (1 - a) * g) + math.log(s / 64)) / (a - 1) for f, g in ((p, r), (r, p)))


def losses(kind, s, q, step, most):
    """Probabilities of privacy losses, rounded up to multiples of step, in both directions; what is above most counts as infinite."""
    x = np.linspace(-1 - 14 * s, 1 + 14 * s, 400001)
    p, r = (sum(w * norm.pdf(x, m, s) for w, m in mix if w) for mix in parts(kind, q))
    out = []
    for f, g in ((p, r), (r, p)):
        mass = f * (x[1] - x[0])
        with np.errstate(divide="ignore"):
            at = np.ceil((np.log(f) - np.log(g)) / step)
        n = int(most / step)
        keep = np.abs(at) <= n
        hist = np.bincount((at[keep] + n).astype(int), mass[keep], 2 * n + 1)
        out.append(hist)
    return out


def epsilon(kind, rounds, delta):
    if kind == "all":
        mu = math.sqrt(sum(4 / s**2 for s, _ in rounds))
        f = lambda e: norm.cdf(mu / 2 - e / mu) - math.exp(e) * norm.cdf(-mu / 2 - e / mu) - delta
        return brentq(f, 0, 200)
    step, most = 2e-3, 40.0
    n = int(most / step)
    whole = None
    for s, q in rounds:
        both = losses(kind, s, q, step, most)
        # losses outside of the grid after a convolution are those of nearly no probability
        whole = both if whole is None else [fftconvolve(w, b)[n:3 * n + 1] for w, b in zip(whole, both)]
    at = (np.arange(2 * n + 1) - n) * step
    delta_of = lambda e: max(float(np.sum(np.maximum(0, -np.expm1(np.minimum(0, e - at))) * w * (at > e))) for w in whole)
    return brentq(lambda e: delta_of(e) - delta, 0, most - 1)


def case(name, kind, rounds, delta):
    kinds = sorted(set(rounds))
    total = [sum(rounds.count(k) * renyi("fixed" if kind == "all" else kind, k[0], k[1], a) for k in kinds) for a in ORDERS]
    return {"name": name, "poisson": kind == "poisson", "rounds": [{"noise": s, "rate": q} for s, q in rounds], "delta": delta,
            "orders": ORDERS, "divergence": total, "epsilon": epsilon(kind, rounds, delta)}


def main():
    # 10 clients a round whose shares of the noise are for 6 of them: with u uploads the noise is z sqrt(u/6).
    uploads = [10, 8, 6, 9, 7, 10, 6, 6]
    shares = lambda z: [round(z * math.sqrt(u / 6), 12) for u in uploads]
    cases = [
        case("10 of 10 clients add shares, some drop out", "all", [(s, 1.0) for s in shares(4.0)], 1e-3),
        case("10 of 10 clients add small shares", "all", [(s, 1.0) for s in shares(1.0)], 1e-4),
        case("10 of 100 clients add shares", "fixed", [(s, 0.1) for s in shares(4.0)], 1e-3),
        case("10 of 20 clients add shares", "fixed", [(s, 0.5) for s in shares(2.0)], 1e-3),
        case("the server adds all of the noise to a Poisson sample", "poisson", [(1.5, 0.1)] * 12, 1e-4),
        case("noise and rate of a Poisson sample change", "poisson",
             [(1.0, 0.05), (1.3, 0.1), (2.0, 0.3), (0.8, 0.02), (1.0, 0.05), (3.0, 0.5)], 1e-4),
    ]
    with open("federation/privacy/testdata/exact.json", "w") as f:
        f.write("[\n" + ",\n".join(json.dumps(c) for c in cases) + "\n]\n")


if __name__ == "__main__":
    main()

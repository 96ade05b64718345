"""Epsilons of whole runs for federation/privacy (python3-numpy, python3-scipy), without any accountant and without the formulas of
federation/privacy.

Run from the module root: python3 tools/golden/privacy_settings.py
Each case is a run of equal rounds: noise z on the sum over the clip norm, rate, number of rounds, delta. For each:

- integral: epsilon by Rényi divergences that are integrals of p^a q^(1-a) over the pair of densities that is worst (renyi of
  privacy_exact.py), at the orders of federation/privacy, converted in the same way. Of samples of fixed size no worst pair is known, and
  there is none.
- lower and upper: bounds of the least epsilon for which the run is (epsilon, delta)-private, by the distribution of the privacy loss of a
  round on a grid and its convolution with itself (by FFT).
  lower: probabilities of a pair of neighbours, losses rounded down. With Poisson sampling the pair is (1-q) N(0,z) + q N(1,z) and
  N(0,z), the worst in each direction (Mironov, Talwar and Zhang 2019; Zhu, Dong and Wang, AISTATS 2022, theorem 11). With fixed size it is
  that of a client whose update is replaced by its opposite while all others' are 0: (1-q) N(0,z) + q N(1,z) and (1-q) N(0,z) + q N(-1,z).
  upper: the privacy profile h(a) = sup P(S) - a Q(S) of a round by chords through its values at e^losses of the grid (Doroshenko et al.,
  PoPETs 2022). With fixed size it is that of Zhu, Dong and Wang 2022, theorem 11 for samples without replacement: for P = N(2,z) and
  Q = N(0,z), the two ends of a replaced update, H_a((1-q) Q + q P, Q) for a >= 1 and H_a(P, (1-q) P + q Q) below.
"""
import json
import math

import numpy as np
from scipy.optimize import brentq
from scipy.stats import norm

from privacy_exact import renyi

ORDERS = [1 + i / 10 for i in range(1, 100)] + list(range(11, 64)) + [128, 256, 512, 1024]


def integral(kind, z, q, rounds, delta):
    """The conversion of Canonne, Kamath and Steinke 2020, proposition 12."""
    best = math.inf
    for a in ORDERS:
        if a > 1.01:
            d = rounds * renyi(kind, z, q, a)
            best = min(best, d + math.log1p(-1 / a) - math.log(delta * a) / (a - 1))
    return max(0.0, best)


def whole(mass, infinite, rounds):
    """The distribution of the sum of the losses of all rounds, and the probability that it is infinite. The middle of mass is loss 0."""
    n = len(mass) // 2
    one = np.fft.rfft(np.roll(np.append(mass, 0.0), -n))
    out = np.fft.irfft(one**rounds, len(mass) + 1)
    return np.roll(out, n)[:-1], -math.expm1(rounds * math.log1p(-infinite))


def solve(mass, infinite, losses, delta):
    """The least epsilon at which sum over losses above it of mass (1 - e^(epsilon - loss)) is at most delta."""
    def excess(e):
        over = losses > e
        return infinite - delta + float(np.sum(-np.expm1(e - losses[over]) * mass[over]))

    return 0.0 if excess(0.0) <= 0 else brentq(excess, 0, losses[-1])


def cells(first, second, z, losses):
    """Probabilities that the loss log(first/second) of two mixtures of N(m, z) lies between neighbours of a grid, under first and under
    second, and that it is above all or below all, under first. The loss rises or falls with x all along."""
    x = np.linspace(-3 - 14 * z, 3 + 14 * z, 2_000_001)
    log = lambda mix: np.logaddexp.reduce([math.log(w) + norm.logpdf(x, m, z) for w, m in mix if w > 0], axis=0)
    loss = log(first) - log(second)
    falls = loss[0] > loss[-1]
    loss, x = (loss[::-1], x[::-1]) if falls else (loss, x)
    far = 2 * (x[-1] - x[0])
    at = np.interp(losses, loss, x, left=x[0] - far, right=x[-1] + far)
    below, above = (norm.sf, norm.cdf) if falls else (norm.cdf, norm.sf)
    out = []
    for mix in (first, second):
        left, right = (sum(w * f(at, m, z) for w, m in mix) for f in (below, above))
        # differences of the smaller tail, which has more digits
        out.append(np.where(left[1:] < right[:-1], np.diff(left), -np.diff(right)))
        ends = (right[-1], left[0]) if mix is first else ends
    return out[0], out[1], *ends


def lower(first, second, z, rounds, delta, losses):
    under_first, _, _, _ = cells(first, second, z, losses)
    return solve(*whole(np.append(under_first, 0.0), 0.0, rounds), losses, delta)


def chords(under_first, under_second, losses):
    """Each cell's probabilities at its two ends, so that both sums stay: the privacy profile becomes its chords."""
    a = np.exp(losses)
    up = np.clip((under_first - a[:-1] * under_second) / np.diff(a), 0, np.maximum(under_second, 0))
    mass = np.zeros(len(losses))
    mass[1:] += a[1:] * up
    mass[:-1] += a[:-1] * (under_second - up)
    return np.maximum(mass, 0)


def upper(pair, z, losses):
    under_first, under_second, infinite, rest = cells(*pair, z, losses)
    mass = chords(under_first, under_second, losses)
    mass[0] += rest
    return mass, infinite


def without_replacement(z, q, losses):
    """The profile of two pairs, above loss 0 and below, has a corner at 0, which is a probability of loss 0."""
    p, r = [(1, 2)], [(1, 0)]
    over, infinite = upper(([(1 - q, 0), (q, 2)], r), z, losses[len(losses) // 2:])
    under, _ = upper((p, [(1 - q, 2), (q, 0)]), z, losses[:len(losses) // 2 + 1])
    # upper puts what lies beyond each half at its end: only the cells count here
    half_over = cells([(1 - q, 0), (q, 2)], r, z, losses[len(losses) // 2:])
    over[0] -= half_over[3]
    mass = np.concatenate([under[:-1], [under[-1] + over[0]], over[1:]])
    mass[len(losses) // 2] += (1 - q) * (norm.sf(1, 2, z) - norm.sf(1, 0, z))
    return mass, infinite


def bounds(kind, z, q, rounds, delta, step=4e-5, most=40.0):
    if q == 1 and kind == "fixed":  # Balle and Wang 2018, theorem 8: one Gaussian of the same total
        mu = 2 * math.sqrt(rounds) / z
        exact = brentq(lambda e: norm.cdf(mu / 2 - e / mu) - math.exp(e + norm.logcdf(-mu / 2 - e / mu)) - delta, 0, 500)
        return exact, exact
    n = int(most / step)
    losses = np.arange(-n, n + 1) * step
    none, one, other = [(1, 0)], [(1 - q, 0), (q, 1)], [(1 - q, 0), (q, -1)]
    pairs = [(one, none), (none, one)] if kind == "poisson" else [(one, other)]
    low = max(lower(f, s, z, rounds, delta, losses) for f, s in pairs)
    high = 0.0
    for pair in pairs:
        mass, infinite = upper(pair, z, losses) if kind == "poisson" else without_replacement(z, q, losses)
        assert abs(mass.sum() + infinite - 1) < 1e-9, mass.sum() + infinite
        high = max(high, solve(*whole(mass, infinite, rounds), losses, delta))
    return low, high


def case(name, kind, z, q, rounds, delta):
    low, high = bounds(kind, z, q, rounds, delta)
    out = {"name": name, "poisson": kind == "poisson", "noise": z, "rate": q, "rounds": rounds, "delta": delta, "lower": low, "upper": high}
    if kind == "poisson" or q == 1:
        out["integral"] = integral(kind, z, q, rounds, delta)
    print(out)
    return out


def main():
    cases = [
        case("all clients train", "fixed", 8.0, 1.0, 20, 1e-3),
        case("one in a hundred, many rounds", "poisson", 1.0, 0.01, 1000, 1e-5),
        case("likewise, smaller delta", "poisson", 1.0, 0.01, 1000, 1e-7),
        case("half of the clients", "poisson", 4.0, 0.5, 50, 1e-5),
        case("little noise", "poisson", 0.6, 0.1, 5, 1e-3),
        case("10 of 100, fixed size", "fixed", 4.0, 0.1, 200, 1e-5),
        case("8 of 16, fixed size", "fixed", 12.0, 0.5, 50, 1e-2),
        case("1 of 100, fixed size, little noise", "fixed", 1.5, 0.01, 100, 1e-4),
    ]
    with open("federation/privacy/testdata/settings.json", "w") as f:
        f.write("[\n" + ",\n".join(json.dumps(c) for c in cases) + "\n]\n")


if __name__ == "__main__":
    main()

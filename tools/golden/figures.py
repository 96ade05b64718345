"""Golden numbers for tools/lab/figures: quartiles and whiskers by NumPy and matplotlib's rule, principal components by NumPy's SVD,
t-SNE's affinities by SciPy's root finder, its divergence and gradient by complex steps, and scikit-learn's divergence at the end.

Run from the module root with a Python that has numpy, scipy and scikit-learn: python3 tools/golden/figures.py
"""
import json
import os

import numpy as np
from scipy.optimize import brentq
from sklearn.manifold import TSNE

rng = np.random.default_rng(5)


def write(path, value):
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "w") as f:
        json.dump(value, f, separators=(",", ":"))
        f.write("\n")


def five(x):
    """As matplotlib.cbook.boxplot_stats with whis=1.5: whiskers end at the last value inside the fence."""
    q1, med, q3 = np.percentile(x, [25, 50, 75])
    low, high = q1 - 1.5 * (q3 - q1), q3 + 1.5 * (q3 - q1)
    inside_low, inside_high = x[x >= low], x[x <= high]
    wlow = q1 if len(inside_low) == 0 or inside_low.min() > q1 else inside_low.min()
    whigh = q3 if len(inside_high) == 0 or inside_high.max() < q3 else inside_high.max()
    outside = np.sort(np.concatenate([x[x < wlow], x[x > whigh]]))
    return {"values": x.tolist(), "low": wlow, "q1": q1, "median": med, "q3": q3, "high": whigh, "outliers": outside.tolist()}


def quartiles():
    sets = [np.array([3.0]), np.array([2.0, 5.0]), np.array([1.0, 2.0, 4.0]), np.array([7.0, 1.0, 3.0, 3.0]),
            np.array([0.0, 0.0, 0.0, 0.0, 9.0]), np.array([1.0, 10.0, 11.0, 12.0, 13.0, 40.0]),
            np.array([10.0, 10.0, 10.0, 14.0, 14.0, 14.0, 100.0])]
    for n in (5, 6, 7, 8, 64):
        sets.append(np.round(rng.standard_t(2, n), 3))
    return [five(x) for x in sets]


def affinities(rows, perplexity):
    n = len(rows)
    d = ((rows[:, None] - rows[None]) ** 2).sum(-1)
    p = np.zeros((n, n))
    for i in range(n):
        others = np.delete(np.arange(n), i)

        def row(beta):
            w = np.exp(-beta * (d[i, others] - d[i, others].min()))
            return w / w.sum()

        def off(beta):
            q = row(beta)
            q = q[q > 0]
            return -(q * np.log(q)).sum() - np.log(perplexity)

        p[i, others] = row(brentq(off, 1e-8, 1e4, xtol=1e-15, rtol=1e-14))
    return (p + p.T) / (2 * n)


def divergence(p, y):
    d = ((y[:, None] - y[None]) ** 2).sum(-1)
    w = 1 / (1 + d)
    np.fill_diagonal(w, 0)
    q = w / w.sum()
    off = ~np.eye(len(y), dtype=bool)
    return (p[off] * np.log(p[off] / q[off])).sum()


def gradient(p, y):
    g = np.zeros(y.shape)
    for i in np.ndindex(y.shape):
        z = y.astype(complex)
        z[i] += 1e-30j
        g[i] = divergence(p, z).imag / 1e-30
    return g


def principal(rows, extra):
    mean = rows.mean(0)
    _, s, vh = np.linalg.svd(rows - mean, full_matrices=False)
    axes = vh[:2] * np.sign([v[np.abs(v).argmax()] for v in vh[:2]])[:, None]
    return {"rows": rows.tolist(), "extra": extra.tolist(), "mean": mean.tolist(), "axes": axes.tolist(),
            "explained": (s[:2] ** 2 / (s**2).sum()).tolist(), "projected": ((extra - mean) @ axes.T).tolist()}


def tsne():
    rows = np.round(rng.normal(size=(12, 5)), 3)
    y = np.round(rng.normal(size=(12, 2)), 3)
    out = {"rows": rows.tolist(), "y": y.tolist(), "cases": []}
    for perplexity in (2.0, 3.5):
        p = affinities(rows, perplexity)
        out["cases"].append({"perplexity": perplexity, "p": p.tolist(), "divergence": divergence(p, y), "gradient": gradient(p, y).tolist()})
    centres = rng.normal(size=(3, 8)) * 3
    clusters = np.round(centres[np.arange(60) % 3] + rng.normal(size=(60, 8)), 3)
    fit = TSNE(method="exact", init="pca", perplexity=10, learning_rate="auto", random_state=0, max_iter=1000).fit(clusters)
    out["clusters"] = {"rows": clusters.tolist(), "perplexity": 10, "divergence": float(fit.kl_divergence_)}
    return out


write("tools/lab/figures/testdata/quartiles.json", quartiles())
write("tools/lab/figures/embedding/testdata/embedding.json", {
    "tsne": tsne(),
    "pca": [principal(np.round(rng.normal(size=(20, 6)) * [3, 1, 1, 2, 0.5, 1], 3), np.round(rng.normal(size=(4, 6)), 3)),
            principal(np.round(rng.normal(size=(5, 9)), 3), np.round(rng.normal(size=(3, 9)), 3))],
})

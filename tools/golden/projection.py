"""Golden numbers for federation/methods/parts/projection: projectors and their gradients by NumPy and PyTorch autograd, in float64.

Run from the module root: python3 tools/golden/projection.py
Kept columns of FedPHA's public code are counted with Python's own int(T * (1 - rho)).
"""
import json
import math
import os
from fractions import Fraction

import numpy as np
import torch

OUT = "federation/methods/parts/projection/testdata/projectors.json"


def lcg(n, seed):
    """n numbers in [-0.5, 0.5) rounded to float32; the Go test draws the same ones."""
    x, out = seed, []
    for _ in range(n):
        x = (x * 1103515245 + 12345) % 2**31
        out.append(x / 2**31 - 0.5)
    return np.array(out, dtype=np.float32).astype(np.float64)


def decimal(rho):
    """The decimal number that rho stands for, exactly: (1 - .8) * 20 is 3.9999999999999996 in float64."""
    return Fraction(str(rho))


def autograd(p, g, build):
    t = torch.tensor(p, requires_grad=True)
    q = build(t)
    (q * torch.tensor(g)).sum().backward()
    return q.detach().numpy(), t.grad.numpy()


def code(rho):
    def build(t):
        _, _, v = torch.svd(t)
        v2 = v[:, int(t.shape[0] * (1 - rho)):]
        return v2 @ v2.T
    return build


def exact_null(rho):
    def build(t):
        d = t.shape[1]
        _, s, vh = torch.linalg.svd(t, full_matrices=False)
        rank = int((s > s[0] * max(t.shape) * 2**-23).sum())
        r = min(rank, d - math.floor((1 - decimal(rho)) * d))
        return torch.eye(d, dtype=t.dtype) - vh[:r].T @ vh[:r]
    return build


def trailing(p, keep):
    """The last columns of [V | completion], the completion being the trailing columns of LAPACK's complete QR of p^T."""
    t, d = p.shape
    full = np.linalg.qr(p.T, mode="complete")[0]
    _, _, vh = np.linalg.svd(p, full_matrices=False)
    v = np.concatenate([vh.T, full[:, t:]], axis=1)[:, d - keep:]
    return v @ v.T


def full(rho):
    """eq9 through torch.linalg.svd(full_matrices=True): shows what autograd does with completing columns."""
    def build(t):
        _, _, vh = torch.linalg.svd(t, full_matrices=True)
        v2 = vh[t.shape[1] - math.floor((1 - decimal(rho)) * t.shape[1]):].T
        return v2 @ v2.T
    return build


def numbers(a):
    return [float(f"{x:.10g}") for x in np.asarray(a).ravel()]


cases = []
for t, d in [(6, 20), (1, 7), (9, 5), (16, 512)]:
    p = lcg(t * d, 7).reshape(t, d)
    g = lcg(d * d, 11).reshape(d, d)
    cols = list(range(d)) if d < 64 else [0, 511]
    for kind, rho in [("code", .3), ("code", .5), ("code", .8), ("exact-null", .1), ("exact-null", .8)]:
        q, dp = autograd(p, g, {"code": code, "exact-null": exact_null}[kind](rho))
        cases.append(dict(kind=kind, rho=rho, t=t, d=d, cols=cols, q=numbers(q[:, cols]), dp=numbers(dp[:, cols])))
    if t > d:
        continue
    for kind, rho, keep in [("eq9", .8, math.floor((1 - decimal(.8)) * d)), ("eq9", .1, math.floor((1 - decimal(.1)) * d)),
                            ("alg1", .8, d - math.floor((1 - decimal(.8)) * d)), ("def1", .6, d - math.floor(decimal(.6) * d))]:
        q = trailing(p, keep)
        cases.append(dict(kind=kind, rho=rho, t=t, d=d, cols=cols, q=numbers(q[:, cols])))
os.makedirs(os.path.dirname(OUT), exist_ok=True)
with open(OUT, "w") as f:
    json.dump(cases, f)

p, g = lcg(120, 7).reshape(6, 20), lcg(400, 11).reshape(20, 20)
print("eq9, full V: largest gradient", np.abs(autograd(p, g, full(.8))[1]).max())
print("code, zero prompt:", autograd(p * 0, g, code(.5))[1][0, :3])
low = p.copy()
low[3:] = low[:3]
print("code .5, rank 3 of 6: largest gradient", np.abs(autograd(low, g, code(.5))[1]).max())
print("code .8, rank 3 of 6: largest gradient", np.abs(autograd(low, g, code(.8))[1]).max())

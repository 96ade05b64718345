"""Small golden files of federation/sets: the formats of image sets as their own Python code reads them.

Run from the module root with numpy and scipy: python tools/golden/sets.py
"""
import json
import os

import numpy as np
import scipy.io

OUT = "federation/sets/testdata"
os.makedirs(OUT, exist_ok=True)
want = {}


def picture(n, h, w, c, seed):
    """uint8 [n,h,w,c] with no two pixels alike by rule."""
    return np.random.RandomState(seed).randint(0, 256, size=(n, h, w, c)).astype(np.uint8)


def mat():
    """MATLAB 5 as scipy writes it: SVHN's layout X [32,32,3,N], y [N,1] with 10 for zero; Flowers' labels [1,N]."""
    x = picture(5, 32, 32, 3, 1)
    y = np.array([[10], [1], [9], [2], [10]], dtype=np.uint8)
    svhn = {"X": np.ascontiguousarray(x.transpose(1, 2, 3, 0)), "y": y}
    scipy.io.savemat(f"{OUT}/svhn_v7.mat", svhn, do_compression=True)
    scipy.io.savemat(f"{OUT}/svhn_v6.mat", dict(svhn, y=y.astype(np.float64), note="text", cells=np.array([[1, "a"]], dtype=object)))
    back = scipy.io.loadmat(f"{OUT}/svhn_v7.mat")
    want["svhn"] = {
        "labels": [int(v) % 10 for v in back["y"][:, 0]],
        # image, row, column, then R, G, B
        "pixels": [[n, r, c] + [int(v) for v in back["X"][r, c, :, n]] for n, r, c in
                   [(0, 0, 0), (0, 0, 1), (0, 1, 0), (2, 31, 7), (4, 5, 30), (4, 31, 31)]],
    }
    kinds = {t: np.array([[-3, 0, 100]], dtype=t) for t in ["int8", "int16", "int32", "int64", "float32", "float64"]}
    kinds.update({t: np.array([[3, 0, 100]], dtype=t) for t in ["uint8", "uint16", "uint32", "uint64"]})
    for name, packed in [("kinds_v7.mat", True), ("kinds_v6.mat", False)]:
        scipy.io.savemat(f"{OUT}/{name}", dict(kinds, grid=np.arange(6).reshape(2, 3), complex=np.array([1j])), do_compression=packed)
    want["kinds"] = {k: [float(x) for x in v.ravel()] for k, v in kinds.items()}


mat()
with open(f"{OUT}/want.json", "w") as f:
    json.dump(want, f, indent=1)

"""Small golden files of federation/data/sets: the MATLAB files of the 102 Category Flower release, as scipy writes them.

Run from the module root with numpy and scipy: python tools/golden/flowers.py
"""
import numpy as np
import scipy.io

OUT = "federation/data/sets/testdata"

# 21 images: ten of label 1, then eleven of label 2.
labels = np.array([[1] * 10 + [2] * 11], dtype=np.uint8)
scipy.io.savemat(f"{OUT}/flowers_imagelabels.mat", {"labels": labels}, do_compression=True)

# Numbers of images from 1: two of each label for training, one for validation, the others for test.
train, val = [1, 2, 11, 12], [3, 13]
test = [i for i in range(1, 22) if i not in train + val]
split = {"trnid": train, "valid": val, "tstid": test}
scipy.io.savemat(f"{OUT}/flowers_setid.mat", {k: np.array([v], dtype=np.uint16) for k, v in split.items()}, do_compression=True)

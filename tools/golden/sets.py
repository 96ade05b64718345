"""Small golden files of federation/data/sets: image sets in the formats that their own Python code writes and reads.

Run from the module root with numpy and scipy: python tools/golden/sets.py
"""
import bz2
import gzip
import json
import os
import pickle
import struct

import numpy as np
import scipy.io

OUT = "federation/data/sets/testdata"
os.makedirs(OUT, exist_ok=True)
# Of each image file: its labels, and pixels as image, row, column, then grey or R, G, B.
want = {"images": {}}
POINTS = [(0, 0), (0, 1), (1, 0), (5, 11), (11, 5), (15, 15)]


def expect(name, x, labels):
    """x is uint8 [N,H,W,C] as the set's own code shows it."""
    want["images"][name] = {"labels": [int(v) for v in labels], "pixels": [
        [n, r, c] + [int(v) for v in x[n, r, c]] for n in range(len(x)) for r, c in POINTS + [(x.shape[1] - 1, x.shape[2] - 1)]]}


def picture(n, h, w, c, seed):
    """uint8 [n,h,w,c], noise of 16 levels so that the files stay small."""
    return (np.random.RandomState(seed).randint(0, 16, size=(n, h, w, c)) * 17).astype(np.uint8)


def mat():
    """MATLAB 5 as scipy writes it: SVHN's layout X [32,32,3,N], y [N,1] with 10 for zero."""
    x = picture(5, 32, 32, 3, 1)
    y = np.array([[10], [1], [9], [2], [10]], dtype=np.uint8)
    svhn = {"X": np.ascontiguousarray(x.transpose(1, 2, 3, 0)), "y": y}
    scipy.io.savemat(f"{OUT}/svhn_v7.mat", svhn, do_compression=True)
    scipy.io.savemat(f"{OUT}/svhn_v6.mat", dict(svhn, y=y.astype(np.float64), note="text", cells=np.array([[1, "a"]], dtype=object)))
    back = scipy.io.loadmat(f"{OUT}/svhn_v7.mat")
    # torchvision.datasets.SVHN: labels 10 become 0, data are transposed by (3, 2, 0, 1), images by (1, 2, 0)
    expect("svhn", np.transpose(back["X"], (3, 2, 0, 1)).transpose(0, 2, 3, 1), back["y"][:, 0] % 10)
    kinds = {t: np.array([[-3, 0, 100]], dtype=t) for t in ["int8", "int16", "int32", "int64", "float32", "float64"]}
    kinds.update({t: np.array([[3, 0, 100]], dtype=t) for t in ["uint8", "uint16", "uint32", "uint64"]})
    for name, packed in [("kinds_v7.mat", True), ("kinds_v6.mat", False)]:
        scipy.io.savemat(f"{OUT}/{name}", dict(kinds, grid=np.arange(6).reshape(2, 3), complex=np.array([1j])), do_compression=packed)
    want["kinds"] = {k: [float(x) for x in v.ravel()] for k, v in kinds.items()}


class Python2(pickle._Pickler):
    """Writes text and bytes as Python 2 did: as byte strings."""
    dispatch = dict(pickle._Pickler.dispatch)

    def save_string(self, obj):
        raw = obj if isinstance(obj, bytes) else obj.encode("latin1")
        self.write(b"U" + bytes([len(raw)]) + raw if len(raw) < 256 else b"T" + struct.pack("<i", len(raw)) + raw)
        self.memoize(obj)

    dispatch[bytes] = save_string
    dispatch[str] = save_string


def dump(obj, path, protocol):
    """protocol "python2" is 2 with byte strings and numpy's module names of that time, as the published files have them."""
    with open(path, "wb") as f:
        if protocol != "python2":
            pickle.dump(obj, f, protocol=protocol)
            return
        import io
        b = io.BytesIO()
        Python2(b, protocol=2).dump(obj)
        f.write(b.getvalue().replace(b"cnumpy._core.", b"cnumpy.core."))


def load(path):
    """As torchvision.datasets.CIFAR10 does."""
    with open(path, "rb") as f:
        return pickle.load(f, encoding="latin1")


def rows(x):
    return np.ascontiguousarray(x.transpose(0, 3, 1, 2)).reshape(len(x), -1)


def cifar():
    folder = f"{OUT}/cifar-10-batches-py"
    os.makedirs(folder, exist_ok=True)
    names = ["airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck"]
    batches = [("data_batch_1", [6, 9, 0], 2), ("data_batch_2", [4], 3), ("test_batch", [3, 8], 4)]
    for name, labels, seed in batches:
        x = picture(len(labels), 32, 32, 3, seed)
        dump({"data": rows(x), "labels": labels, "batch_label": name, "filenames": [f"{i}_s_{i:06d}.png" for i in range(len(labels))]},
             f"{folder}/{name}", "python2")
        back = load(f"{folder}/{name}")
        expect(f"cifar10/{name}", back["data"].reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1), back["labels"])
    dump({"num_cases_per_batch": 10000, "label_names": names, "num_vis": 3072}, f"{folder}/batches.meta", "python2")
    # The same first batch, pickled again by Python 3.
    first = load(f"{folder}/data_batch_1")
    for protocol in [2, 4, 5]:
        dump({"data": first["data"], "labels": np.array(first["labels"])}, f"{OUT}/cifar_protocol{protocol}", protocol)
    with open(f"{OUT}/cifar10_data_batch_1.bin", "wb") as f:  # and in the binary version
        for label, row in zip(first["labels"], first["data"]):
            f.write(bytes([label]) + row.tobytes())

    folder = f"{OUT}/cifar-100-python"
    os.makedirs(folder, exist_ok=True)
    fine = "apple aquarium_fish baby bear beaver".split()
    coarse = "aquatic_mammals fish fruit_and_vegetables large_carnivores people".split()
    dump({"fine_label_names": fine, "coarse_label_names": coarse}, f"{folder}/meta", "python2")
    of = [2, 1, 4, 3, 0]
    for name, labels, seed in [("train", [1, 0, 4, 3, 2], 5), ("test", [3, 1], 6)]:
        x = picture(len(labels), 32, 32, 3, seed)
        dump({"data": rows(x), "fine_labels": labels, "coarse_labels": [of[k] for k in labels], "batch_label": name}, f"{folder}/{name}", "python2")
        back = load(f"{folder}/{name}")
        expect(f"cifar100/{name}", back["data"].reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1), back["fine_labels"])
    want["coarse"] = of
    back = load(f"{folder}/test")
    with open(f"{OUT}/cifar100_test.bin", "wb") as f:
        for c, k, row in zip(back["coarse_labels"], back["fine_labels"], back["data"]):
            f.write(bytes([c, k]) + row.tobytes())


def mnist():
    x = picture(3, 20, 28, 1, 7)  # not square, so that rows and columns cannot be mixed up
    labels = [7, 0, 4]
    raw = struct.pack(">BBBBIII", 0, 0, 8, 3, *x.shape[:3]) + x.tobytes()
    with open(f"{OUT}/images-idx3-ubyte", "wb") as f:
        f.write(raw)
    with open(f"{OUT}/images-idx3-ubyte.gz", "wb") as f:
        f.write(gzip.compress(raw, mtime=0))
    with open(f"{OUT}/labels-idx1-ubyte", "wb") as f:
        f.write(struct.pack(">BBBBI", 0, 0, 8, 1, 3) + bytes(labels))
    expect("mnist", x, labels)
    dump((x[..., 0], np.array(labels)), f"{OUT}/digits.pkl", 2)  # FedBN's form


def usps():
    rng = np.random.RandomState(8)
    values = np.round(rng.uniform(-1, 1, size=(3, 256)), 3)
    values[0, :3] = [-1, 1, 0]
    labels = [1, 10, 6]
    text = "".join(f"{k} " + " ".join(f"{i + 1}:{v:g}" for i, v in enumerate(row)) + " \n" for k, row in zip(labels, values))
    with open(f"{OUT}/usps.bz2", "wb") as f:
        f.write(bz2.compress(text.encode()))
    # torchvision.datasets.USPS
    with bz2.open(f"{OUT}/usps.bz2") as f:
        lines = [line.decode().split() for line in f]
    imgs = np.asarray([[float(v.split(":")[-1]) for v in line[1:]] for line in lines]).reshape((-1, 16, 16))
    imgs = ((imgs + 1) / 2 * 255).astype(dtype=np.uint8)
    expect("usps", imgs[..., None], [int(line[0]) - 1 for line in lines])


def tables():
    """FedBN's lists of paths and labels in every form that numpy.load reads."""
    paths = ["office_caltech_10/amazon/mug/frame_0001.jpg", "office_caltech_10/amazon/back_pack/frame_0002.jpg",
             "office_caltech_10/amazon/mug/frame_0003.jpg"]
    labels = ["mug", "back_pack", "mug"]
    numbers = [8, 0, 8]
    pair = (np.array(paths), np.array(labels))
    objects = np.array([paths, labels], dtype=object)
    dump(pair, f"{OUT}/table_tuple_python2.pkl", "python2")
    dump((np.array(paths, dtype="S"), np.array(labels, dtype="S")), f"{OUT}/table_bytes_python2.pkl", "python2")
    dump(pair, f"{OUT}/table_tuple_2.pkl", 2)
    dump(pair, f"{OUT}/table_tuple_4.pkl", 4)
    dump([paths, numbers], f"{OUT}/table_lists_numbers.pkl", 3)
    dump((objects[0], np.array(numbers)), f"{OUT}/table_objects_numbers.pkl", 5)
    dump(objects, f"{OUT}/table_array_objects.pkl", 4)
    for name, a in [("objects", objects), ("text", np.array([paths, labels])), ("fortran", np.asfortranarray(np.array([paths, labels])))]:
        with open(f"{OUT}/table_npy_{name}.pkl", "wb") as f:
            np.save(f, a)
    for name in sorted(os.listdir(OUT)):
        if name.startswith("table_"):
            got, tags = np.load(f"{OUT}/{name}", allow_pickle=True, encoding="latin1")
            want.setdefault("tables", {})[name] = [
                [v.decode() if isinstance(v, bytes) else str(v) for v in got], [v.decode() if isinstance(v, bytes) else str(v) for v in tags]]


mat()
cifar()
mnist()
usps()
tables()
with open(f"{OUT}/want.json", "w") as f:
    json.dump(want, f)

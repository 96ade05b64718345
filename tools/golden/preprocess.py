"""Writes models/preprocess/testdata: small images and what Pillow and numpy make of them.

    python3 tools/golden/preprocess.py [folder with PACS images]

Needs Pillow before 12.2 and numpy. Files: NAME.png and so on, the images; golden.json, for
every image the sha256 of convert("RGB"), and per case the sha256 of the resized
and cropped bytes [S,S,3] and of the normalised float32 [3,S,S]; boxes.json, boxes of
RandomResizedCrop for given uniform numbers; and, if the folder is given,
lossy.json and pacs.json, pixels of lossy files as Pillow decodes them.

Resize and CenterCrop follow torchvision's published rules, written out here.
"""

import hashlib
import json
import math
import pathlib
import random
import sys

import numpy as np
from PIL import Image

ROOT = pathlib.Path(__file__).resolve().parents[2]
OUT = ROOT / "models" / "preprocess" / "testdata"
MEAN = np.array([0.48145466, 0.4578275, 0.40821073], np.float32)
STD = np.array([0.26862954, 0.26130258, 0.27577711], np.float32)
FILL = 9
FILTER = {"bicubic": Image.BICUBIC, "bilinear": Image.BILINEAR}


def sha(a):
    return hashlib.sha256(np.ascontiguousarray(a).tobytes()).hexdigest()


def pictures():
    rng = np.random.default_rng(7)
    y, x = np.mgrid[0:61, 0:83]
    gradient = np.stack([x * 3, y * 4, (x + y)], -1).astype(np.uint8)
    checks = (((x // 3 + y // 3) % 2) * 255).astype(np.uint8)
    noise = rng.integers(0, 256, (37, 53, 3), dtype=np.uint8)
    alpha = np.concatenate([noise, rng.integers(0, 256, (37, 53, 1), dtype=np.uint8)], -1)
    alpha[:5, :, 3] = 0
    rgb = Image.fromarray(noise)
    palette = Image.fromarray(gradient).quantize(64)
    clear = palette.copy()
    clear.info["transparency"] = 3
    yield "gradient.png", Image.fromarray(gradient), {}
    yield "checks.png", Image.fromarray(np.stack([checks, 255 - checks, checks], -1)), {}
    yield "noise.png", rgb, {}
    yield "tall.png", Image.fromarray(rng.integers(0, 256, (90, 7, 3), dtype=np.uint8)), {}
    yield "wide.png", Image.fromarray(rng.integers(0, 256, (5, 111, 3), dtype=np.uint8)), {}
    yield "dot.png", Image.fromarray(np.full((1, 1, 3), 77, np.uint8)), {}
    yield "line.png", Image.fromarray(rng.integers(0, 256, (1, 40, 3), dtype=np.uint8)), {}
    yield "square.png", Image.fromarray(rng.integers(0, 256, (24, 24, 3), dtype=np.uint8)), {}
    yield "margin.png", Image.fromarray(rng.integers(0, 256, (24, 27, 3), dtype=np.uint8)), {}
    yield "grey.png", Image.fromarray(checks), {}
    yield "bit.png", Image.fromarray(checks).convert("1"), {}
    yield "greyalpha.png", Image.fromarray(alpha).convert("LA"), {}
    yield "palette.png", palette, {}
    yield "cleared.png", clear, {"transparency": 3}
    yield "alpha.png", Image.fromarray(alpha), {}
    yield "grey16.png", Image.fromarray((x * 700 + y * 9).astype(np.uint16)), {}
    yield "first.gif", palette, {}
    yield "flat.bmp", rgb, {}
    yield "packed.tiff", rgb, {"compression": "tiff_lzw"}
    yield "lossless.webp", rgb, {"lossless": True}


def rgb_of(im):
    if im.mode.startswith("I"):  # high byte: the one place where we part from Pillow, which saturates
        return Image.fromarray((np.array(im).astype(np.int64) >> 8).astype(np.uint8)).convert("RGB")
    return im.convert("RGB")


def preprocess(im, size, filter, crop, longest):
    if longest:  # OpenCLIP's ResizeKeepRatio(longest=1) and CenterCropOrPad
        ratio = max(im.size[0] / size, im.size[1] / size)
        w, h = (max(1, round(x / ratio)) for x in im.size)
        out = Image.new("RGB", (size, size), (FILL,) * 3)
        out.paste(im.resize((w, h), FILTER[filter]), ((size - w) // 2, (size - h) // 2))
        return np.array(out)
    if not crop:
        return np.array(im.resize((size, size), FILTER[filter]))
    w, h = im.size
    short, long = (w, h) if w <= h else (h, w)
    new = int(size * long / short)
    w, h = (size, new) if w <= h else (new, size)
    im = im.resize((w, h), FILTER[filter])
    left, top = int(round((w - size) / 2.0)), int(round((h - size) / 2.0))
    return np.array(im.crop((left, top, left + size, top + size)))


def normalise(a):
    return ((a.astype(np.float32) / np.float32(255) - MEAN) / STD).transpose(2, 0, 1).astype(np.float32)


def view(im, box, size, flip):
    left, top, w, h = box
    out = im.crop((left, top, left + w, top + h)).resize((size, size), Image.BICUBIC)
    return np.array(out.transpose(Image.FLIP_LEFT_RIGHT) if flip else out)


def random_box(w, h, draws):
    draws = iter(draws)
    for _ in range(10):
        area = w * h * (0.08 + (1 - 0.08) * next(draws))
        aspect = math.exp(math.log(3 / 4) + (math.log(4 / 3) - math.log(3 / 4)) * next(draws))
        bw, bh = int(round(math.sqrt(area * aspect))), int(round(math.sqrt(area / aspect)))
        if 0 < bw <= w and 0 < bh <= h:
            top, left = int(next(draws) * (h - bh + 1)), int(next(draws) * (w - bw + 1))
            return [left, top, bw, bh]
    if w / h < 3 / 4:
        bw, bh = w, int(round(w / (3 / 4)))
    elif w / h > 4 / 3:
        bw, bh = int(round(h * (4 / 3))), h
    else:
        bw, bh = w, h
    return [(w - bw) // 2, (h - bh) // 2, bw, bh]


def dump(path, rows):
    path.write_text("[\n" + ",\n".join(json.dumps(r, separators=(",", ":")) for r in rows) + "\n]\n")


def main():
    OUT.mkdir(parents=True, exist_ok=True)
    rows = []
    for name, im, options in pictures():
        im.save(OUT / name, **options)
        im = Image.open(OUT / name)
        im.load()
        im = rgb_of(im)
        w, h = im.size
        row = {"file": name, "width": w, "height": h, "rgb": sha(np.array(im)), "cases": [], "views": []}
        for size, filter, crop, longest in [(24, "bicubic", True, False), (64, "bicubic", True, False), (224, "bicubic", True, False),
                                            (31, "bilinear", True, False), (32, "bicubic", False, False), (100, "bilinear", False, False),
                                            (40, "bicubic", False, True), (25, "bilinear", False, True)]:
            a = preprocess(im, size, filter, crop, longest)
            case = {"size": size, "resize": filter, "crop": crop, "bytes": sha(a), "pixels": sha(normalise(a))}
            row["cases"].append({**case, **({"longest": True, "fill": FILL} if longest else {})})
        for box, flip in [([0, 0, w, h], True), ([w // 3, h // 4, max(1, w // 2), max(1, h // 2)], False)]:
            row["views"].append({"box": box, "flip": flip, "pixels": sha(normalise(view(im, box, 40, flip)))})
        rows.append(row)
    dump(OUT / "golden.json", rows)
    rnd = random.Random(3)
    boxes = []
    for i in range(60):
        w, h = (rnd.randint(1, 400), rnd.randint(1, 400)) if i % 3 else (rnd.randint(1, 20), rnd.randint(100, 400))
        draws = [round(rnd.random(), 6) for _ in range(24)]
        boxes.append({"w": w, "h": h, "draws": draws, "box": random_box(w, h, draws)})
    dump(OUT / "boxes.json", boxes)
    if len(sys.argv) > 1:
        lossy(pathlib.Path(sys.argv[1]))
    print(f"{OUT.relative_to(ROOT)}: {len(rows)} images, Pillow {Image.__version__}")


def lossy(root):
    """Lossy files decode differently elsewhere; their 32 x 32 pixels, base64 of [32,32,3], are what is compared."""
    import base64
    rows = []
    for path in sorted(root.glob("*/*/*.jpg"))[::112]:
        im = Image.open(path).convert("RGB")
        rows.append({"path": path.relative_to(root).as_posix(),
                     "pixels": base64.b64encode(preprocess(im, 32, "bicubic", True).tobytes()).decode()})
    dump(OUT / "pacs.json", rows)
    y, x = np.mgrid[0:48, 0:60]
    smooth = Image.fromarray(np.stack([x * 4, y * 5, 255 - x * 2 - y * 2], -1).astype(np.uint8))
    made = []
    ink = np.stack([x * 4, y * 5, (x + y) * 2, (x * y) // 25], -1).astype(np.uint8)
    for name, im, options in [("lossy.webp", smooth, {"quality": 95}),
                              ("lossyalpha.webp", Image.merge("RGBA", (*smooth.split(), Image.new("L", smooth.size, 100))), {"quality": 95}),
                              ("colour.jpg", smooth, {"quality": 95}), ("full.jpg", smooth, {"quality": 95, "subsampling": 0}),
                              ("ink.jpg", Image.fromarray(ink, "CMYK"), {"quality": 100, "subsampling": 0}),
                              ("grey.jpg", smooth.convert("L"), {"quality": 95})]:
        im.save(OUT / name, **options)
        made.append({"path": name, "pixels": base64.b64encode(np.array(Image.open(OUT / name).convert("RGB")).tobytes()).decode()})
    dump(OUT / "lossy.json", made)


if __name__ == "__main__":
    main()

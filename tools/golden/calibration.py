"""Expected calibration error of Guo et al. (ICML 2017, eq. 3), by its definition and with nothing but Python's own numbers: a bin
is the examples with low < confidence <= high. Writes federation/engine/metrics/testdata/calibration.json: cases of class scores, labels and
the error with 15 bins; examples of all cases together in "together".

    python3 tools/golden/calibration.py
"""

import json
import math
import pathlib
import random

BINS = 15


def ece(rows, labels):
    confidences, right = [], []
    for row, label in zip(rows, labels):
        total = math.fsum(math.exp(v) for v in row)
        probabilities = [math.exp(v) / total for v in row]
        best = max(range(len(row)), key=lambda j: (probabilities[j], -j))
        confidences.append(probabilities[best])
        right.append(1.0 if best == label else 0.0)
    error = 0.0
    for m in range(BINS):
        low, high = m / BINS, (m + 1) / BINS
        inside = [i for i, c in enumerate(confidences) if low < c <= high]
        if inside:
            accuracy = math.fsum(right[i] for i in inside) / len(inside)
            confidence = math.fsum(confidences[i] for i in inside) / len(inside)
            error += len(inside) / len(labels) * abs(accuracy - confidence)
    return error


def case(rng, examples, classes, scale):
    # Quarters, so that float32 holds them exactly.
    rows = [[round(4 * rng.gauss(0, scale)) / 4 for _ in range(classes)] for _ in range(examples)]
    labels = [max(range(classes), key=lambda j: row[j]) if rng.random() < 0.6 else rng.randrange(classes) for row in rows]
    return rows, labels


def main():
    rng = random.Random(11)
    cases = [case(rng, n, c, s) for n, c, s in [(40, 2, 0.5), (60, 5, 1.5), (25, 10, 4), (1, 3, 1)]]
    out = {"cases": [{"scores": rows, "labels": labels, "ece": ece(rows, labels)} for rows, labels in cases],
           "together": ece([r for rows, _ in cases for r in rows], [y for _, labels in cases for y in labels])}
    path = pathlib.Path(__file__).parents[2] / "federation" / "engine" / "metrics" / "testdata" / "calibration.json"
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps(out) + "\n")


main()

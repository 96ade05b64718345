"""Losses term by term: value and gradient of each term by itself, by autograd of that term alone. See methods.py."""
from methods import DASSL, PLAIN

PHA = {"global_tokens": 3, "local_tokens": [2, 4, 3], "ratio": 0.5}
APPR = {"tokens": 3, "lambda_a": 0.5, "lambda_r": 0.2, "hidden": 3, "disc_steps": 5, "disc_lr": 0.01}
T = {"tokens": 2}
TERMS = {"terms": True}
CASES = [(*c, TERMS) for c in [
    ("fedpha", [], {**PHA, "projector": "exact-null"}, PLAIN),
    ("fedpha", [], {**PHA, "projector": "eq9", "alpha": 0.3, "pull": "mean"}, DASSL),
    ("fedpha", [], {**PHA, "projector": "exact-null", "projector_grad": "through", "svd_every": "step"}, PLAIN),
    ("fedappr", [], {**APPR, "warmup": 0}, DASSL),
    ("fedappr", [], {**APPR, "warmup": 1}, PLAIN),
    ("coop", ["fedproto"], {**T, "lambda": 2.0}, {**PLAIN, "epochs": 2}),
    ("promptfl", ["fedproto"], {**T, "distance": "mean"}, PLAIN),
    ("promptfl", ["moon"], {**T, "mu": 3.0}, {**PLAIN, "epochs": 2}),
    ("promptfl", ["moon"], {**T, "centre": False}, PLAIN),
    ("promptfl", ["scaffold"], T, DASSL),
    ("promptfl", ["feddyn", "fedntd"], T, DASSL),
    ("fedpha", ["fedproto", "fedprox"], {**PHA, "projector": "exact-null", "lambda": 2.0}, {**PLAIN, "epochs": 2}),
]]

"""Golden numbers for runtime/optim: torch.optim and torch.optim.lr_scheduler, PyTorch 1.13.

Run from the module root: /usr/bin/python3 tools/golden/optim.py
"""
import json
import os
import warnings

import torch
from torch.optim import lr_scheduler as sched

warnings.filterwarnings("ignore")
OUT = "runtime/optim/testdata"
os.makedirs(OUT, exist_ok=True)
torch.manual_seed(5)
SHAPES = {"a": [3, 2], "b": [4], "c": []}
START = {n: torch.randn(s) for n, s in SHAPES.items()}
# The second step has no gradient of b, the fourth starts from tiny gradients; learning rates change from step to step.
GRADS = [{n: torch.randn(s) * (1e-6 if i == 3 else 1) for n, s in SHAPES.items() if (i, n) != (1, "b")} for i in range(6)]
LRS = [.1, .1, .05, .02, .02, .3]


def flat(t):
    return [float(x) for x in t.detach().reshape(-1)]


def run(config):
    """Float64 PyTorch on the same float32 inputs, so that the goldens carry no rounding of their own."""
    params = {n: torch.nn.Parameter(t.double().clone()) for n, t in START.items()}
    c = dict(config)
    name, norm, value = c.pop("name"), c.pop("clip_norm", 0), c.pop("clip_value", 0)
    if name != "sgd":
        c["betas"] = (c.pop("beta1", .9), c.pop("beta2", .999))
        c.setdefault("weight_decay", 0)
    cls = {"sgd": torch.optim.SGD, "adam": torch.optim.Adam, "adamw": torch.optim.AdamW}[name]
    opt = cls(params.values(), lr=1., **c)
    after = []
    for grads, lr in zip(GRADS, LRS):
        for n, p in params.items():
            p.grad = grads[n].double().clone() if n in grads else None
        if value:
            torch.nn.utils.clip_grad_value_(params.values(), value)
        if norm:
            torch.nn.utils.clip_grad_norm_(params.values(), norm)
        opt.param_groups[0]["lr"] = lr
        opt.step()
        after.append({n: flat(p) for n, p in params.items()})
    return after


CONFIGS = [
    dict(name="sgd"),
    dict(name="sgd", weight_decay=.05),
    dict(name="sgd", momentum=.9),
    dict(name="sgd", momentum=.9, weight_decay=5e-4),
    dict(name="sgd", momentum=.8, dampening=.3, weight_decay=.01),
    dict(name="sgd", momentum=.9, nesterov=True, weight_decay=.01),
    dict(name="sgd", clip_norm=.5),
    dict(name="sgd", clip_norm=100.),
    dict(name="sgd", momentum=.9, clip_value=.4, clip_norm=.7),
    dict(name="adam"),
    dict(name="adam", weight_decay=.1, beta1=.8, beta2=.95, eps=1e-3),
    dict(name="adam", clip_value=.3),
    dict(name="adamw"),
    dict(name="adamw", weight_decay=.2, beta1=.9, beta2=.98, eps=1e-6, clip_norm=1.),
]
with open(f"{OUT}/optimizers.json", "w") as f:
    json.dump(dict(shapes=SHAPES, start={n: flat(t) for n, t in START.items()},
                   grads=[{n: flat(t) for n, t in g.items()} for g in GRADS], lrs=LRS,
                   cases=[dict(config=c, after=run(c)) for c in CONFIGS]), f)


class ConstantWarmup(sched._LRScheduler):
    """Written from the documented behaviour of Dassl's scheduler: cons_lr for the first epochs, then the successor, which
    has not been stepped in the meantime."""

    def __init__(self, optimizer, successor, epochs, rate):
        self.successor, self.epochs, self.rate = successor, epochs, rate
        super().__init__(optimizer)

    def get_lr(self):
        return self.successor.get_last_lr() if self.last_epoch >= self.epochs else [self.rate]

    def step(self, epoch=None):
        if self.last_epoch < self.epochs:
            return super().step(epoch)
        self.successor.step()
        self._last_lr = self.successor.get_last_lr()


def rates(config, base, n=25):
    opt = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=base)
    kind, w = config["kind"], config.get("warmup", 0)
    linear = config.get("warmup_kind") == "linear"

    def after():
        if kind == "step":
            return sched.StepLR(opt, config["step_size"], config.get("gamma", .1))
        if kind == "cosine":
            return sched.CosineAnnealingLR(opt, config["t_max"], config.get("min_lr", 0))
        return sched.LambdaLR(opt, lambda _: 1.)

    if w and linear:
        warm = sched.LinearLR(opt, start_factor=config["warmup_lr"] / base, total_iters=w)
        s = sched.SequentialLR(opt, [warm, after()], milestones=[w])
    elif w:
        s = ConstantWarmup(opt, after(), w, config["warmup_lr"])
    else:
        s = after()
    out = []
    for _ in range(n):
        out.append(opt.param_groups[0]["lr"])
        opt.step()
        s.step()
    return out


SCHEDULES = [
    dict(kind="constant"),
    dict(kind="constant", warmup=1, warmup_lr=1e-5),
    dict(kind="constant", warmup=4, warmup_lr=1e-4, warmup_kind="linear"),
    dict(kind="step", step_size=5),
    dict(kind="step", step_size=4, gamma=.5, warmup=3, warmup_lr=1e-5),
    dict(kind="step", step_size=4, gamma=.5, warmup=3, warmup_lr=1e-5, warmup_kind="linear"),
    dict(kind="step", step_size=1, gamma=1.),
    dict(kind="cosine", t_max=20),
    dict(kind="cosine", t_max=8, min_lr=1e-4),
    dict(kind="cosine", t_max=30, warmup=1, warmup_lr=1e-5),
    dict(kind="cosine", t_max=10, min_lr=1e-4, warmup=5, warmup_lr=1e-5, warmup_kind="linear"),
]
with open(f"{OUT}/schedules.json", "w") as f:
    json.dump([dict(config=c, base=.002, rates=rates(c, .002)) for c in SCHEDULES], f)

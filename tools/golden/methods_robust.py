"""Robust aggregation and differential privacy, whose server sees changed or chosen uploads. See methods.py."""
import math
import types

import torch

from methods import DASSL, PLAIN
from methods_wrappers import Server


def copy(u, **more):
    return types.SimpleNamespace(**{**vars(u), **more})


def flat(shared):
    return torch.cat([shared[n].ravel() for n in sorted(shared)])


class Robust(Server):
    """Yin et al. 2018, Blanchard et al. 2017, and clipped norms."""
    defaults = {"weighting": "uniform", "kind": "median", "trim": 0.2, "attackers": 1, "clip": 1.0}

    def merge(self, r, server, ups):
        o, n = self.o, len(ups)
        stacked = {k: torch.stack([u.shared[k] for u in ups]) for k in server.shared}
        if o["kind"] == "median":
            ups = [copy(u, shared={k: torch.quantile(v, 0.5, dim=0) for k, v in stacked.items()}) for u in ups]
        elif o["kind"] == "trimmed-mean":
            drop = min(-int(-o["trim"] * n // 1), (n - 1) // 2)
            ups = [copy(u, shared={k: v.sort(dim=0).values[drop:n - drop].mean(0) for k, v in stacked.items()}) for u in ups]
        elif o["kind"] == "norm-clip":
            old, clipped = server.shared, []
            for u in ups:
                far = (flat(u.shared) - flat(old)).norm()
                scale = min(1.0, o["clip"] / far.item()) if o["clip"] else 1.0
                clipped.append(copy(u, shared={k: old[k] + scale * (u.shared[k] - old[k]) for k in old}))
            ups = clipped
        else:
            x = torch.stack([flat(u.shared) for u in ups])
            far = torch.cdist(x, x, compute_mode="donot_use_mm_for_euclid_dist") ** 2
            score = far.sort(dim=1).values[:, 1:1 + max(1, n - o["attackers"] - 2)].sum(1)
            keep = 1 if o["kind"] == "krum" else n - o["attackers"]
            ups = [ups[i] for i in sorted(torch.argsort(score, stable=True)[:keep].tolist())]
        self.mean(r, server, ups)


class DP(Server):
    """DP-FedAvg without noise: clipped moves, every client once."""
    defaults = {"clip": 1.0, "noise": 1.0, "where": "server", "least": 0.6, "adapt": 0.0, "quantile": 0.5}

    def start(self, server):
        super().start(server)
        if self.o["where"] == "client":
            server.down["dp/clients"] = torch.tensor([3.0]).double()
        if self.o["adapt"]:
            server.kept["dp/clip"] = torch.tensor([self.o["clip"]]).double()

    def clipped(self, old, new, clip):
        far = (flat(new) - flat(old)).norm().item()
        return {k: old[k] + min(1.0, clip / far) * (new[k] - old[k]) for k in new}

    def finish(self, env, p, up):
        super().finish(env, p, up)
        if self.o["where"] == "client":
            up.shared = self.clipped({k: env.received[k] for k in up.shared}, up.shared, self.o["clip"])

    def merge(self, r, server, ups):
        clip = server.kept["dp/clip"].item() if self.o["adapt"] else self.o["clip"]
        if self.o["adapt"]:
            share = sum((flat(u.shared) - flat(server.shared)).norm().item() <= clip for u in ups) / 3
            server.kept["dp/clip"] = torch.tensor([clip * math.exp(-self.o["adapt"] * (share - self.o["quantile"]))]).double()
        clipped = [self.clipped(server.shared, u.shared, clip) for u in ups]
        mean = {k: sum(c[k] for c in clipped) / 3 for k in server.shared}
        self.inner.merge(r, server, [types.SimpleNamespace(client=-1, n=3, shared=mean, extra={})])


WRAPPERS = {"robust": Robust, "dp": DP}
QUIET = {"noise": 0.0, "clip": 0.02}
T = {"tokens": 2}
PHA = {"global_tokens": 2, "local_tokens": [2, 3], "ratio": 0.5, "projector": "exact-null", "svd_every": "step"}
ALIKE = {"alike": True}
CASES = [
    ("promptfl", ["robust"], T, PLAIN),
    ("promptfl", ["robust"], {**T, "kind": "trimmed-mean", "trim": 0.3}, DASSL),
    ("promptfl", ["robust"], {**T, "kind": "krum", "attackers": 0}, PLAIN),
    ("promptfl", ["robust"], {**T, "kind": "multi-krum", "attackers": 0, "weighting": "examples"}, PLAIN),
    ("promptfl", ["robust"], {**T, "kind": "norm-clip", "clip": 0.02}, DASSL),
    ("fedpha", ["robust"], {**PHA, "kind": "norm-clip", "clip": 0.01, "weighting": "examples"}, PLAIN),
    ("fedclip", ["robust"], {"kind": "krum", "attackers": 0, "loss": "ce"}, PLAIN, ALIKE),
    ("fedclip", ["robust"], {"kind": "median", "loss": "ce"}, PLAIN, ALIKE),
    ("promptfl", ["dp"], {**T, **QUIET}, PLAIN),
    ("promptfl", ["dp"], {**T, **QUIET, "clip": 0.05, "adapt": 0.7, "quantile": 0.3}, PLAIN),
    ("fedclip", ["dp"], {**QUIET, "where": "client", "loss": "ce"}, DASSL, ALIKE),
    ("fedpha", ["fedprox", "dp"], {**PHA, "dp": {"noise": 0.0, "clip": 0.01}}, DASSL),
    ("promptfl", ["fedopt", "dp"], {**T, "dp": QUIET, "fedopt": {"kind": "yogi"}}, PLAIN),
    ("promptfl", ["fedopt", "robust"], {**T, "robust": {"kind": "median"}, "fedopt": {"kind": "momentum"}}, PLAIN),
]

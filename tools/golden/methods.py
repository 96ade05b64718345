"""Golden numbers for federation/methods: two rounds of three clients of every method, by PyTorch autograd in float64.

Run from the module root: /usr/bin/python3 tools/golden/methods.py
The toy text function, the toy examples and all first values are written here again from their formulas (package
federation/methodtest); nothing is read from the Go program. Each case is one vector: all traced numbers but the
examples themselves, in the byte order of their names in the trace.
"""
import json
import math
import os
import struct

import numpy as np
import torch

OUT = "federation/methods/testdata"
W, C, SCALE = 6, 4, 4.0
SIZES = [9, 5, 6]
BACKBONES = [(5, 0), (7, 7), (5, 0)]  # joint dimension and salt of each client's backbone
FIRST = {"ctx": 10, "global": 11, "c0/local": 12, "c1/local": 13, "c2/local": 14, "fedappr/w1": 20, "fedappr/w2": 21}


def value(salt, i):
    x = (i * 2654435761 + salt * 40503) % 2**32
    x ^= x >> 16
    x = x * 0x45d9f3b % 2**32
    x ^= x >> 16
    return x / 2**31 - 1


def values(salt, scale, *shape):
    a = np.array([scale * value(salt, i) for i in range(int(np.prod(shape)))], dtype=np.float32)
    return torch.tensor(a.astype(np.float64).reshape(shape))


def first(name, *shape):
    return values(FIRST[name], 0.6, *shape)


def rows(salt, n, dim):
    x = values(salt, 1, n, dim)
    x = x / x.norm(dim=1, keepdim=True)
    return x.float().double(), torch.tensor([(i + salt) % C for i in range(n)])


def unit(x):
    return x / x.norm(dim=-1, keepdim=True)


def text(ctx, backbone, after=0, position="end"):
    dim, salt = backbone
    weights = torch.tensor([float(np.float32(1) / np.float32(t + 2)) for t in range(len(ctx))], dtype=torch.float64)
    m = weights @ torch.tanh(ctx @ values(1, 1, W, W))
    m = m * (1 + ["end", "middle", "front"].index(position) / 4)
    return unit(torch.tanh(m + values(2, 0.8, C, W) + 0.3 * after * values(3, 1, 1, W)) @ values(4 + salt, 1, W, dim))


def cross_entropy(features, x, y):
    return torch.nn.functional.cross_entropy(SCALE * x @ features.T, y)


def projector(p, kind, rho):
    """FedPHA eq. 8-10 in its four readings."""
    t, d = p.shape
    if kind == "code":
        _, _, v = torch.svd(p)
        v = v[:, int(t * (1 - rho)):]
        return v @ v.T
    _, s, vh = torch.linalg.svd(p, full_matrices=False)
    rank = int((s > s[0] * max(t, d) * 2**-23).sum())
    keep = math.floor((1 - rho) * d + 1e-9)
    if kind == "exact-null":
        r = min(rank, d - keep)
        return torch.eye(d, dtype=p.dtype) - vh[:r].T @ vh[:r]
    assert rank == t or rank == d
    full = torch.linalg.qr(p.T, mode="complete")[0]  # completes the null space
    v = torch.cat([vh[:rank].T, full[:, rank:]], dim=1)
    v = {"eq9": v[:, d - keep:], "alg1": v[:, math.floor(d * (1 - rho) + 1e-9):]}[kind]
    return v @ v.T


class PromptFL:
    shared, private, personal = ["ctx"], [], False
    defaults = {"tokens": 16, "position": "end"}

    def __init__(self, o):
        self.o = {**self.defaults, **o}

    def init(self, name, client=None):
        return first(name, self.o["tokens"], W)

    def logits(self, k, p):
        return lambda x: SCALE * x @ text(p["ctx"], BACKBONES[k], 0, self.o["position"]).T

    def loss(self, k, p, received, x, y, memo, draws):
        return torch.nn.functional.cross_entropy(self.logits(k, p)(x), y)

    def start(self, server):
        pass

    def begin(self, r, k, p, server, kept):
        pass

    def finish(self, k, p, kept):
        pass

    def merge(self, r, server, uploads):
        pass


class CoOp(PromptFL):
    shared, private = [], ["ctx"]

    def init(self, name, client=None):
        return values(10 + client, 0.6, self.o["tokens"], W)


class FedPHA(PromptFL):
    shared, private = ["global"], ["local"]
    defaults = {"ratio": 0.8, "alpha": 1.0, "projector": "eq9", "projector_grad": "detach", "svd_every": "step",
                "pull": "sum-per-class", "push": "class", "eot": "own"}

    def length(self, k):
        return self.o["local_tokens"][k % len(self.o["local_tokens"])]

    def init(self, name, client=None):
        if name == "global":
            return first("global", self.o["global_tokens"], W)
        return first(f"c{client}/local", self.length(client), W)

    def text(self, k, p):
        longest = max([self.o["global_tokens"]] + self.o["local_tokens"])
        return text(p, BACKBONES[k], longest - len(p) if self.o["eot"] == "longest" else 0)

    def logits(self, k, p):
        return lambda x: SCALE * x @ self.text(k, p["local"]).T

    def loss(self, k, p, received, x, y, memo, draws):
        if "q" not in memo or self.o["svd_every"] == "step":
            memo["q"] = projector(p["global"], self.o["projector"], self.o["ratio"])
            if self.o["projector_grad"] == "detach":
                memo["q"] = memo["q"].detach()
        draws["projector"] = memo["q"]
        tg, tl, tp = self.text(k, p["global"]), self.text(k, p["local"]), self.text(k, p["local"] @ memo["q"])
        pull = (tl - tp).pow(2)
        pull = pull.mean() if self.o["pull"] == "mean" else pull.sum(1).mean()
        far = (tl - tg).norm() if self.o["push"] == "scalar" else (tl - tg).norm(dim=1)
        return cross_entropy(tl, x, y) + cross_entropy(tg, x, y) + pull + torch.relu(self.o["alpha"] - far).mean()


class FedAPPR(PromptFL):
    personal = True
    defaults = {"tokens": 16, "position": "end", "lambda_a": 0.1, "lambda_r": 0.01, "warmup": 20, "hidden": 8,
                "disc_input": "tokens", "disc_steps": 1, "disc_lr": 0.001, "pool": 0, "start": "global"}

    def start(self, server):
        server["down"] = {"fedappr/w1": first("fedappr/w1", W, self.o["hidden"]), "fedappr/w2": first("fedappr/w2", self.o["hidden"], 1)}

    def disc(self, p, w):
        """Log-probability of an average and of an upload, per token or of the mean token; p [..., T, w]."""
        if self.o["disc_input"] == "mean":
            p = p.mean(-2, keepdim=True)
        d = torch.sigmoid(torch.relu(p @ w["fedappr/w1"]) @ w["fedappr/w2"])
        return torch.log(d).mean(), torch.log(1 - d).mean()

    def begin(self, r, k, p, server, kept):
        self.on, self.d = r + 1 > self.o["warmup"], server["down"]
        if self.o["start"] == "own" and "ctx" in kept:
            p["ctx"] = kept["ctx"].clone()

    def finish(self, k, p, kept):
        if self.o["start"] == "own":
            kept["ctx"] = p["ctx"].clone()

    def loss(self, k, p, received, x, y, memo, draws):
        out = super().loss(k, p, received, x, y, memo, draws)
        if self.on:
            out = out - self.o["lambda_a"] * self.disc(p["ctx"], self.d)[0]
        return out + self.o["lambda_r"] * (p["ctx"] - received["ctx"]).pow(2).sum()

    def merge(self, r, server, uploads):
        if r + 1 <= self.o["warmup"]:
            return
        pool = server["kept"]
        pool[f"fedappr/pool/{r:06d}"] = server["shared"]["ctx"]
        while self.o["pool"] and len(pool) > self.o["pool"]:
            del pool[min(pool)]
        w = {n: t.clone().requires_grad_() for n, t in server["down"].items()}
        sgd = torch.optim.SGD(w.values(), lr=self.o["disc_lr"])
        for _ in range(self.o["disc_steps"]):
            sgd.zero_grad()
            past, now = torch.stack([pool[n] for n in sorted(pool)]), torch.stack([u["ctx"] for u in uploads])
            (-self.disc(past, w)[0] - self.disc(now, w)[1]).backward()
            sgd.step()
        server["down"] = {n: t.detach() for n, t in w.items()}


METHODS = {"promptfl": PromptFL, "coop": CoOp, "fedpha": FedPHA, "fedappr": FedAPPR}


def simulate(case):
    m = METHODS[case["method"]](case["options"])
    mu = case["options"].get("mu", 0) if "fedprox" in case["with"] else 0
    train, trace = case["train"], {}

    def put(name, t):
        trace[name] = t.detach().clone().numpy().ravel()

    server = {"shared": {n: m.init(n) for n in m.shared}, "down": {}, "kept": {}}
    m.start(server)
    for n, t in server["shared"].items():
        put("init/" + n, t)
    private = [{n: m.init(n, k) for n in m.private} for k in range(3)]
    kept, own = [{}, {}, {}], [{}, {}, {}]
    for r in range(2):
        lr = train["lr"]
        if train["schedule"] == "cosine":
            lr = lr * (1 + math.cos(math.pi * r / 10)) / 2
        uploads = []
        for k in range(3):
            at = f"r{r}/c{k}/"
            for n, t in server["down"].items():
                put(at + "down/" + n, t)
            for n, t in kept[k].items():
                put(at + "kept/" + n, t)
            p = {n: t.clone() for n, t in {**server["shared"], **private[k]}.items()}
            m.begin(r, k, p, server, kept[k])
            for n, t in p.items():
                put(at + "begin/" + n, t)
                t.requires_grad_()
            sgd = torch.optim.SGD(p.values(), lr=lr, momentum=train["momentum"], weight_decay=train["weight_decay"])
            x, y = rows(100 + k, SIZES[k], BACKBONES[k][0])
            step, memo = 0, {}
            for _ in range(train["epochs"]):
                for i in range(0, SIZES[k], 4):
                    draws = {}
                    sgd.zero_grad()
                    loss = m.loss(k, p, server["shared"], x[i:i + 4], y[i:i + 4], memo, draws)
                    for n in m.shared:
                        loss = loss + mu / 2 * (p[n] - server["shared"][n]).pow(2).sum()
                    loss.backward()
                    put(f"{at}s{step}/loss", loss)
                    for n, t in draws.items():
                        put(f"{at}s{step}/draw/{n}", t)
                    for n, t in p.items():
                        put(f"{at}s{step}/grad/{n}", t.grad)
                    sgd.step()
                    for n, t in p.items():
                        put(f"{at}s{step}/after/{n}", t)
                    step += 1
            p = {n: t.detach() for n, t in p.items()}
            m.finish(k, p, kept[k])
            own[k] = {n: p[n] for n in m.shared}
            private[k] = {n: p[n] for n in m.private}
            uploads.append(own[k])
            for n in m.shared:
                put(f"{at}upload/{n}", p[n])
        server["shared"] = {n: sum(s * u[n] for s, u in zip(SIZES, uploads)) / sum(SIZES) for n in m.shared}
        m.merge(r, server, uploads)
        for part, under in (("shared", "merged"), ("down", "down"), ("kept", "kept")):
            for n, t in server[part].items():
                put(f"r{r}/{under}/{n}", t)
        for k in range(3):
            x, _ = rows(200 + k, 7, BACKBONES[k][0])
            put(f"r{r}/c{k}/eval/logits", m.logits(k, {**(own[k] if m.personal else server["shared"]), **private[k]})(x))
    names = sorted(trace, key=lambda n: n.encode())
    return np.concatenate([trace[n] for n in names]).astype("<f4")


PLAIN = {"epochs": 1, "lr": 0.1, "momentum": 0, "weight_decay": 0, "schedule": ""}
DASSL = {"epochs": 1, "lr": 0.05, "momentum": 0.9, "weight_decay": 5e-4, "schedule": "cosine"}
PHA = {"global_tokens": 3, "local_tokens": [2, 4, 3], "ratio": 0.5}
APPR = {"tokens": 3, "lambda_a": 0.5, "lambda_r": 0.2, "hidden": 3, "disc_lr": 0.3, "warmup": 0}
cases = [
    ("promptfl", [], {"tokens": 3}, PLAIN),
    ("promptfl", [], {"tokens": 2, "position": "middle"}, DASSL),
    ("coop", [], {"tokens": 3}, {**PLAIN, "epochs": 2}),
    ("coop", [], {"tokens": 2, "position": "front"}, DASSL),
    ("fedpha", [], PHA, PLAIN),
    ("fedpha", [], {**PHA, "ratio": 0.8, "eot": "longest"}, DASSL),
    ("fedpha", [], {**PHA, "projector": "alg1"}, PLAIN),
    ("fedpha", [], {**PHA, "projector": "code"}, PLAIN),
    ("fedpha", [], {**PHA, "projector": "code", "projector_grad": "through", "pull": "mean", "eot": "longest"}, DASSL),
    ("fedpha", [], {**PHA, "projector": "exact-null"}, PLAIN),
    ("fedpha", [], {**PHA, "projector": "exact-null", "projector_grad": "through", "push": "scalar"}, PLAIN),
    ("fedpha", [], {**PHA, "projector": "exact-null", "svd_every": "round", "alpha": 1.7}, PLAIN),
    ("fedpha", [], {**PHA, "projector": "exact-null", "ratio": 0.2, "local_tokens": [3], "alpha": 0.3}, PLAIN),
    ("fedappr", [], APPR, PLAIN),
    ("fedappr", [], {**APPR, "warmup": 1, "start": "own"}, PLAIN),
    ("fedappr", [], {**APPR, "disc_input": "mean", "disc_steps": 3, "pool": 1}, DASSL),
    ("fedappr", [], {**APPR, "start": "own", "lambda_r": 0.0}, PLAIN),
    ("promptfl", ["fedprox"], {"tokens": 3, "mu": 0.7}, {**PLAIN, "epochs": 2}),
    ("fedpha", ["fedprox"], {**PHA, "mu": 0.5}, PLAIN),
]
cases = [dict(zip(("method", "with", "options", "train"), c)) for c in cases]
vectors = {f"{i:02d}": simulate(c) for i, c in enumerate(cases)}
header, offset = {}, 0
for n, v in vectors.items():
    header[n] = {"dtype": "F32", "shape": [len(v)], "data_offsets": [offset, offset + 4 * len(v)]}
    offset += 4 * len(v)
head = json.dumps(header).encode()
head += b" " * (-len(head) % 8)
os.makedirs(OUT, exist_ok=True)
with open(OUT + "/methods.safetensors", "wb") as f:
    f.write(struct.pack("<Q", len(head)) + head)
    for v in vectors.values():
        f.write(v.tobytes())
with open(OUT + "/methods.json", "w") as f:
    json.dump({"first": FIRST, "cases": cases}, f, indent=1)
    f.write("\n")

"""Golden numbers for federation/methods: two rounds of three clients of every method, by PyTorch autograd in float64.

Run from the module root, with Debian's python3-torch and python3-scipy: /usr/bin/python3 tools/golden/methods.py [GROUP ...]
The toy text function, the toy examples and all first values are written here again from their formulas (package
federation/methodtest); nothing is read from the Go program. Each tools/golden/methods_GROUP.py gives METHODS and WRAPPERS, by
name, and CASES: method, wrappers, options, training and, if need be, a dict with sizes (examples of each client), alike (all
clients have the first backbone) and terms (each term of the loss with its own gradients belongs to the traced numbers). Its numbers go to testdata/GROUP.safetensors, one vector a case: all traced numbers but the examples
themselves, in the byte order of their names in the trace. GROUP.json tells the cases and the first values, each a salt,
a scale and a shape.
"""
import importlib
import json
import math
import os
import pathlib
import struct
import sys
import types

import numpy as np
import torch

OUT = "federation/methods/testdata"
W, C, SCALE = 6, 4, 4.0
SIZES = [9, 5, 6]
BACKBONES = [(5, 0), (7, 7), (5, 0)]  # joint dimension and salt of each client's backbone
CLASSES = ["ant", "bee", "cat", "dog"]
F = torch.nn.functional


def value(salt, i):
    x = (i * 2654435761 + salt * 40503) % 2**32
    x ^= x >> 16
    x = x * 0x45d9f3b % 2**32
    x ^= x >> 16
    return x / 2**31 - 1


def values(salt, scale, *shape):
    a = np.array([scale * value(salt, i) for i in range(int(np.prod(shape)))], dtype=np.float32)
    return torch.tensor(a.astype(np.float64).reshape(shape))


def rows(salt, n, dim):
    """Images [n,dim] with unit rows, labels [n], patches [n,2,dim], pixels [n,3,2,2]."""
    x = values(salt, 1, n, dim)
    x = x / x.norm(dim=1, keepdim=True)
    patches = values(salt + 1000, float(1 / math.sqrt(dim)), n, 2, dim)
    return x.float().double(), torch.tensor([(i + salt) % C for i in range(n)]), patches, values(salt + 2000, 1, n, 3, 2, 2)


def tokens(salt, n):
    """Tokens [n,7,4] of images behind the last block."""
    return values(salt + 3000, 1, n, 7, 4)


def unit(x):
    return x / x.norm(dim=-1, keepdim=True)


def text(ctx, backbone, after=0, position="end", deep=(), changes=(), bare=False, alone=False):
    """The toy's class features [C,D] of a prompt, [B,C,D] of one for each image, unit rows; deep may hold None."""
    m = 0
    for i, p in enumerate([ctx, *deep]):
        if p is not None:
            o = -2 if bare and i == 0 else ["end", "middle", "front"].index(position)
            weights = torch.tensor([float(np.float32(1 + o / 4) / np.float32((t + 2) * (i + 1))) for t in range(p.shape[-2])], dtype=torch.float64)
            m = m + (weights @ torch.tanh(p @ values(1, 1, W, W))).unsqueeze(-2)
    names = 0 if alone else values(2, 0.8, C, W) + 0.3 * after * values(3, 1, 1, W)
    return unit(head(torch.tanh(m + names), changes, backbone, 4, W))


def head(x, changes, backbone, salt, width):
    """x W with low-rank changes, each a block, a map, A and B, or adapters as functions; those of the head come last."""
    dim, more = backbone
    y = 0
    for block, where, a, b in changes:
        if where == "adapter":
            x = x + a(x) / (block + 2)
        elif where != "head":
            x = x + x @ a @ b / (block + 2)
        else:
            y = y + x @ a @ b
    return x @ values(salt + more, 1, width, dim) + y


def words(sentence):
    """The toy's embeddings of words."""
    return values(9 + sum(sentence.encode()), 0.5, len(sentence.split()), W)


def sentences(backbone, template="a photo of a {}.", changes=(), raw=False):
    """The toy's features of whole texts, one for each class, unit rows unless raw."""
    s = torch.stack([values(5 + sum(template.replace("{}", c).encode()), 1, W) for c in CLASSES])
    features = head(torch.tanh(s), changes, backbone, 4, W)
    return features if raw else unit(features)


def vision(pixels, backbone, tokens=None, deep=(), prompt=None, normed=False, changes=()):
    """The toy's image features [B,D] with prompts, unit rows; deep may hold None."""
    if prompt is not None:
        pixels = pixels + prompt
    x = pixels.reshape(len(pixels), 12) @ values(31, 1, 12, 4)
    for i, p in enumerate([tokens, *deep]):
        if p is not None:
            w = torch.tensor([1 / (t + 2) / (i + 1) for t in range(len(p))], dtype=torch.float64) * (1.5 if i == 0 and normed else 1)
            x = x + w @ torch.tanh(p @ values(32, 1, 4, 4))
    return unit(head(torch.tanh(x), changes, backbone, 33, 4))


class Draws:
    """What Go's math/rand/v2 draws from the bits of federation/methodtest.Source."""

    def __init__(self, r, k):
        self.salt, self.n = 8000 + 100 * r + k, 0

    def bits(self):
        x = int((value(self.salt, self.n) + 1) * 2**31)
        self.n += 1
        return x, (x - 2**32 if x >= 2**31 else x) >> 1

    def normal(self):
        return self.bits()[1] * float(np.float32(1.6030948e-09))

    def uniform(self):
        x, j = self.bits()
        return ((x >> 18) << 39 | 127 << 32 | j % 2**32) % 2**53 / 2**53


class Method:
    """One layer. env holds r, k, backbone, x, y, patches, pixels, tokens, received, before, down, kept, memo, draws, scalars, lr, steps, n, rand."""

    shared, private, personal = [], [], False
    defaults = {}

    def __init__(self, o):
        self.o = {**self.defaults, **o}

    def init(self, name, client):
        """Salt, scale and shape of a first value."""
        raise NotImplementedError(name)

    def logits(self, env, p):
        raise NotImplementedError

    def loss(self, env, p):
        return F.cross_entropy(self.logits(env, p), env.y)

    def terms(self, env, p):
        """The parts of the loss by name; of methods that do not tell them apart, one."""
        return {"cross entropy": self.loss(env, p)}

    def start(self, server):
        """Extras in server.down, as salt, scale and shape."""

    def begin(self, env, p):
        pass

    def order(self, env):
        """The rows of one pass over the data."""
        return list(range(env.n))

    def batch(self, env, rows):
        """Images, labels, patches and pixels of rows."""
        return [a[rows] for a in (env.all_x, env.all_y, env.all_patches, env.all_pixels)]

    def rate(self, name, lr):
        """The learning rate of a parameter."""
        return lr

    def adjust(self, env, grads):
        pass

    def finish(self, env, p, up):
        pass

    def statistics(self, r):
        """Pairs of ask(env) and aggregate(server, answers) by name."""
        return {}

    def merge(self, r, server, ups):
        total = sum(u.n for u in ups)
        server.shared = {n: sum(u.n * u.shared[n] for u in ups) / total for n in server.shared}


class Wrapper(Method):
    """Does what the layer inside does, until a method says otherwise."""

    def __init__(self, inner, o):
        super().__init__(o)
        self.inner = inner
        self.shared, self.private, self.personal = inner.shared, inner.private, inner.personal

    def init(self, name, client):
        return self.inner.init(name, client)

    def logits(self, env, p):
        return self.inner.logits(env, p)

    def features(self, env, p):
        return self.inner.features(env, p)

    def loss(self, env, p):
        return self.inner.loss(env, p)

    def terms(self, env, p):
        return self.inner.terms(env, p)

    def start(self, server):
        self.inner.start(server)

    def begin(self, env, p):
        self.inner.begin(env, p)

    def order(self, env):
        return self.inner.order(env)

    def batch(self, env, rows):
        return self.inner.batch(env, rows)

    def rate(self, name, lr):
        return self.inner.rate(name, lr)

    def adjust(self, env, grads):
        self.inner.adjust(env, grads)

    def finish(self, env, p, up):
        self.inner.finish(env, p, up)

    def statistics(self, r):
        return self.inner.statistics(r)

    def merge(self, r, server, ups):
        self.inner.merge(r, server, ups)


class Summed:
    """A layer whose loss is the sum of its terms."""

    def loss(self, env, p):
        return sum(self.terms(env, p).values())


METHODS, WRAPPERS = {}, {}


def build(case):
    """The stack; options stand as in a configuration, a wrapper's below its name or, if it alone knows the key, plainly."""
    o = case["options"]
    names = set(case["with"]) | {case["method"]}
    plain = {k: v for k, v in o.items() if k not in names}
    m = METHODS[case["method"]]({**plain, **o.get(case["method"], {})})
    for w in case["with"]:
        m = WRAPPERS[w](m, {**{k: v for k, v in plain.items() if k in WRAPPERS[w].defaults}, **o.get(w, {})})
    return m


def simulate(case):
    m, train, trace, firsts, sizes = build(case), case["train"], {}, {}, case.get("sizes", SIZES)
    m.train = train
    backbones = BACKBONES[:1] * 3 if case.get("alike") else BACKBONES

    def put(name, t):
        if name.rsplit("/", 1)[-1] not in ("label", "image"):
            trace[name] = t.detach().clone().double().numpy().ravel()

    def first(name, spec):
        firsts[name] = {"salt": spec[0], "scale": spec[1], "shape": list(spec[2:])}
        return values(*spec)

    server = types.SimpleNamespace(shared={n: first(n, m.init(n, None)) for n in m.shared}, down={}, kept={}, each={}, clients=3, backbones=backbones)
    m.start(server)
    server.down = {n: first(n, v) if isinstance(v, tuple) else v for n, v in server.down.items()}
    for n, t in server.shared.items():
        put("init/" + n, t)
    private = [{n: first(f"c{k}/{n}", m.init(n, k)) for n in m.private} for k in range(3)]
    kept, own = [{}, {}, {}], [{}, {}, {}]

    def environment(r, k):
        x, y, patches, pixels = rows(100 + k, sizes[k], backbones[k][0])
        received = {**server.shared, **private[k]}
        return types.SimpleNamespace(r=r, k=k, n=sizes[k], clients=3, backbone=backbones[k], all_x=x, all_y=y, all_patches=patches, all_pixels=pixels, x=x, y=y, patches=patches, pixels=pixels,
                                     received=received, before={**received, **own[k]}, down={**server.down, **server.each.get(k, {})},
                                     kept=kept[k], memo={}, draws={}, scalars={}, steps=0, frozen=[], lr=None, rand=Draws(r, k))

    for r in range(2):
        lr = train["lr"]
        if train["schedule"] == "cosine":
            lr = lr * (1 + math.cos(math.pi * r / 10)) / 2
        server.lr = lr
        for s, (ask, aggregate) in m.statistics(r).items():
            answers = []
            for k in range(3):
                env = environment(r, k)
                answers.append(types.SimpleNamespace(client=k, n=sizes[k], extra=ask(env)))
                for n, t in answers[k].extra.items():
                    put(f"r{r}/statistic/{s}/c{k}/{n}", t)
            before = dict(server.down), dict(server.kept)
            before_each = {k: dict(each) for k, each in server.each.items()}
            aggregate(server, answers)
            for part, old in zip((server.down, server.kept), before):
                for n, t in part.items():
                    if old.get(n) is not t:
                        put(f"r{r}/statistic/{s}/aggregate/{n}", t)
            for k, each in server.each.items():
                for n, t in each.items():
                    if before_each.get(k, {}).get(n) is not t:
                        put(f"r{r}/statistic/{s}/aggregate/c{k}/{n}", t)
        uploads = []
        for k in range(3):
            at, env = f"r{r}/c{k}/", environment(r, k)
            env.lr = lr
            for n, t in env.down.items():
                put(at + "down/" + n, t)
            for n, t in env.kept.items():
                put(at + "kept/" + n, t)
            p = {n: t.clone() for n, t in env.received.items()}
            if r == 0:  # private parameters are put in place when the round begins, after zeros
                for part in (env.received, env.before):
                    part.update({n: torch.zeros_like(p[n]) for n in m.private})
            m.begin(env, p)
            for n, t in p.items():
                put(at + "begin/" + n, t)
                t.requires_grad_()
            sgd = torch.optim.SGD([{"params": [t], "lr": m.rate(n, lr)} for n, t in p.items()], lr=lr, momentum=train["momentum"], weight_decay=train["weight_decay"]) if p else None
            for epoch in range(train["epochs"]):
                order = m.order(env) if p else []
                for i in range(0, len(order), 4):
                    env.rows, env.epoch, env.draws = order[i:i + 4], epoch, {}
                    env.x, env.y, env.patches, env.pixels = m.batch(env, env.rows)
                    env.tokens = tokens(100 + k, env.n)[[i for i in env.rows if i < env.n]]
                    step = f"{at}s{env.steps}/term/"
                    for term, v in m.terms(env, p).items() if case.get("terms") else []:
                        put(f"{step}{term}/loss", v)
                        for n, g in zip(p, torch.autograd.grad(v, list(p.values()), allow_unused=True, retain_graph=True)):
                            if g is not None:  # else the term does not reach it
                                put(f"{step}{term}/grad/{n}", g)
                    sgd.zero_grad()
                    loss = m.loss(env, p)
                    loss.backward()
                    before = {n: t.grad.clone() for n, t in p.items()}
                    m.adjust(env, {n: t.grad for n, t in p.items()})
                    for n in env.frozen:
                        p[n].grad = None
                    for n, t in p.items() if case.get("terms") else []:
                        if t.grad is not None and (t.grad != before[n]).any():
                            put(f"{step}correction/grad/{n}", t.grad - before[n])
                    put(f"{at}s{env.steps}/loss", loss)
                    for n, t in env.draws.items():
                        put(f"{at}s{env.steps}/draw/{n}", t)
                    for n, t in p.items():
                        if t.grad is not None:
                            put(f"{at}s{env.steps}/grad/{n}", t.grad)
                    sgd.step()
                    for n, t in p.items():
                        put(f"{at}s{env.steps}/after/{n}", t)
                    env.steps += 1
            env.x, env.y, env.patches, env.pixels = env.all_x, env.all_y, env.all_patches, env.all_pixels
            p = {n: t.detach() for n, t in p.items()}
            up = types.SimpleNamespace(client=k, n=sizes[k], shared={n: p[n] for n in m.shared}, extra={})
            with torch.no_grad():
                m.finish(env, p, up)
            own[k] = getattr(env, "own", None) or {n: p[n] for n in m.shared}
            private[k] = {n: p[n] for n in m.private}
            uploads.append(up)
            for n, t in {**up.shared, **up.extra}.items():
                put(f"{at}upload/{n}", t)
        m.merge(r, server, uploads)
        for part, under in ((server.shared, "merged"), (server.down, "down"), (server.kept, "kept")):
            for n, t in part.items():
                put(f"r{r}/{under}/{n}", t)
        for k in range(3):
            env = environment(r, k)
            env.x, env.y, env.patches, env.pixels = rows(200 + k, 7, backbones[k][0])
            env.tokens = tokens(200 + k, 7)
            with torch.no_grad():
                put(f"r{r}/c{k}/eval/logits", m.logits(env, {**(own[k] if m.personal else server.shared), **private[k]}))
    names = sorted(trace, key=lambda n: n.encode())
    return np.concatenate([trace[n] for n in names]).astype("<f4"), firsts


PLAIN = {"epochs": 1, "lr": 0.1, "momentum": 0, "weight_decay": 0, "schedule": ""}
DASSL = {"epochs": 1, "lr": 0.05, "momentum": 0.9, "weight_decay": 5e-4, "schedule": "cosine"}


def write(group, cases):
    cases = [{**dict(zip(("method", "with", "options", "train"), c)), **(c[4] if len(c) > 4 else {})} for c in cases]
    header, offset, vectors = {}, 0, []
    for i, c in enumerate(cases):
        v, c["first"] = simulate(c)
        header[f"{i:02d}"] = {"dtype": "F32", "shape": [len(v)], "data_offsets": [offset, offset + 4 * len(v)]}
        offset += 4 * len(v)
        vectors.append(v)
    head = json.dumps(header).encode()
    head += b" " * (-len(head) % 8)
    os.makedirs(OUT, exist_ok=True)
    with open(f"{OUT}/{group}.safetensors", "wb") as f:
        f.write(struct.pack("<Q", len(head)) + head)
        for v in vectors:
            f.write(v.tobytes())
    with open(f"{OUT}/{group}.json", "w") as f:
        f.write("[\n" + ",\n".join(json.dumps(c) for c in cases) + "\n]\n")


def main(wanted):
    here = pathlib.Path(__file__).parent
    sys.modules["methods"] = sys.modules[__name__]
    groups = {p.stem[len("methods_"):]: importlib.import_module(p.stem) for p in sorted(here.glob("methods_*.py"))}
    for g in groups.values():
        METHODS.update(getattr(g, "METHODS", {}))
        WRAPPERS.update(getattr(g, "WRAPPERS", {}))
    for name, g in groups.items():
        if not wanted or name in wanted:
            write(name, g.CASES)


if __name__ == "__main__":
    main(sys.argv[1:])

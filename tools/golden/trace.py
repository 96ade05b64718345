"""Recomputes every number of a trace in float64 with PyTorch, from nothing but the trace and the Hugging Face checkpoint
behind its bundle.

    promptfed convert HF_FOLDER --out BUNDLE
    promptfed trace CONFIG --rounds 2 --out TRACE
    python3 tools/golden/trace.py TRACE HF_FOLDER [HF_FOLDER ...]

Several folders are matched to the trace's bundles in order. Prints the largest error by kind of number, relative to the
largest value of its tensor, of a gradient to the largest of its step, and fails above 1e-4. Covers coop, promptfl, fedpha, fedappr, cocoop, dpfpl, pfedmoap and trip,
the wrappers fedprox and fedrep, gradient clipping, learning rates of parameters' own and prompts that are added to words.
"""
import itertools
import json
import struct
import sys
import types

import numpy as np
import torch
import torch.nn.functional as F

torch.set_num_threads(1)
VERSION = 3


def safetensors(path):
    raw = open(path, "rb").read()
    n = struct.unpack("<Q", raw[:8])[0]
    out = {}
    for name, t in json.loads(raw[8:8 + n]).items():
        if name == "__metadata__":
            continue
        kind = {"F32": np.float32, "I64": np.int64}[t["dtype"]]
        lo, hi = t["data_offsets"]
        x = torch.from_numpy(np.frombuffer(raw[8 + n + lo:8 + n + hi], kind).reshape(t["shape"]).copy())
        out[name] = x.double() if t["dtype"] == "F32" else x
    return out


class Text:
    """CLIP's text tower, plainly: every class is one whole sequence, read at its last position."""

    def __init__(self, folder, bundle):
        self.w = safetensors(folder + "/model.safetensors")
        c = json.load(open(folder + "/config.json"))["text_config"]
        self.heads, self.layers, self.act = c["num_attention_heads"], c["num_hidden_layers"], c["hidden_act"]
        self.tokens, self.hand, self.templates = bundle["tokens"], bundle["hand_tokens"], bundle.get("template_tokens", {})
        self.start = [] if bundle["sos"] < 0 else [bundle["sos"]]
        self.embedding = self.w["text_model.embeddings.token_embedding.weight"]

    def norm(self, x, name):
        return F.layer_norm(x, x.shape[-1:], self.w[name + ".weight"], self.w[name + ".bias"], 1e-5)

    def lin(self, x, name):
        return F.linear(x, self.w[name + ".weight"], self.w[name + ".bias"])

    def sequence(self, x):
        x = x + self.w["text_model.embeddings.position_embedding.weight"][: len(x)]
        mask = torch.full((len(x), len(x)), float("-inf"), dtype=torch.float64).triu(1)
        for i in range(self.layers):
            p = "text_model.encoder.layers.%d." % i
            y = self.norm(x, p + "layer_norm1")
            q, k, v = (self.lin(y, p + "self_attn.%s_proj" % n).view(len(x), self.heads, -1).transpose(0, 1) for n in "qkv")
            a = (q @ k.transpose(1, 2) / q.shape[-1] ** 0.5 + mask).softmax(-1) @ v
            x = x + self.lin(a.transpose(0, 1).reshape(len(x), -1), p + "self_attn.out_proj")
            y = self.lin(self.norm(x, p + "layer_norm2"), p + "mlp.fc1")
            y = y * torch.sigmoid(1.702 * y) if self.act == "quick_gelu" else F.gelu(y)
            x = x + self.lin(y, p + "mlp.fc2")
        return self.norm(x, "text_model.final_layer_norm")[-1] @ self.w["text_projection.weight"].T

    def __call__(self, ctx, after=0):
        e = self.embedding
        return F.normalize(torch.stack([self.sequence(torch.cat([e[self.start], ctx, e[ids], e[[0] * after]])) for ids in self.tokens]), dim=-1)

    def sentences(self, template=None):
        """Features before they are unit."""
        ids = self.hand if template is None else self.templates[template]
        return torch.stack([self.sequence(self.embedding[i]) for i in ids])


class Method:
    """One method: the scores of a batch, and what differs from FedAvg on their cross entropy. e is a client in a round."""
    private, personal = set(), False

    def __init__(self, info, t, check):
        self.info, self.t, self.check = info, t, check
        self.o, self.own = info["config"]["options"], {}

    def scores(self, e, p, test=False):
        return e.scale * e.image @ e.text(p["ctx"]).T

    def loss(self, e, p):
        return F.cross_entropy(self.scores(e, p), e.label)

    def adjust(self, e, p, grads):
        return grads

    def merge(self, r, ups, weights):
        return {n: sum(w * u[n] for w, u in zip(weights, ups.values())) for n in next(iter(ups.values()))}

    def after(self, r, old, merged, ups):
        pass


class CoOp(Method):
    private, personal = {"ctx"}, True


def projector(g, kind, ratio):
    u, s, vt = torch.linalg.svd(g, full_matrices=False)
    if kind == "code":
        v = vt[int(len(s) * (1 - ratio)):]
        return v.T @ v
    d = g.shape[1]
    v = vt[:min(int((s > s[0] * 1e-6).sum()), d - int((1 - ratio) * d + 1e-9))]
    return torch.eye(d, dtype=torch.float64) - v.T @ v


class FedPHA(Method):
    private, personal = {"local"}, True

    def read(self, e, x):
        longest = max([self.o["global_tokens"]] + self.o["local_tokens"])
        return e.text(x, longest - len(x) if self.o["eot"] == "longest" else 0)

    def scores(self, e, p, test=False):
        return e.scale * e.image @ self.read(e, p["local"]).T

    def loss(self, e, p):
        o, q = self.o, self.t[e.step + "draw/projector"]
        if o["projector"] in ("code", "exact-null") and o["svd_every"] == "step":
            self.check("projector", projector(p["global"].detach(), o["projector"], o["ratio"]), e.step + "draw/projector")
        tg, tl, tp = self.read(e, p["global"]), self.read(e, p["local"]), self.read(e, p["local"] @ q)
        pull = ((tl - tp) ** 2).mean() if o["pull"] == "mean" else ((tl - tp) ** 2).sum(-1).mean()
        push = torch.relu(o["alpha"] - (tl - tg).norm(dim=-1)).mean()
        fit = lambda x: F.cross_entropy(e.scale * e.image @ x.T, e.label)
        return fit(tl) + fit(tg) + pull + push


class FedAPPR(Method):
    personal = True

    def judge(self, ctx, average, w1, w2):
        if self.o["disc_norm"] == "unit":
            ctx = ctx / average.pow(2).mean().sqrt()
        x = ctx.mean(-2, keepdim=True) if self.o["disc_input"] == "mean" else ctx
        return torch.sigmoid(torch.relu(x @ w1) @ w2)

    def loss(self, e, p):
        total, o = super().loss(e, p), self.o
        if e.round + 1 > o["warmup"]:
            fooled = self.judge(p["ctx"], e.received["ctx"], e.down["fedappr/w1"], e.down["fedappr/w2"])
            total = total - o["lambda_a"] * torch.log(fooled).mean()
        return total + o["lambda_r"] * ((p["ctx"] - e.received["ctx"]) ** 2).sum()

    def after(self, r, old, merged, ups):
        o = self.o
        at = "start/down/" if r == 0 else "r%d/down/" % (r - 1)
        w1, w2 = (self.t[at + "fedappr/" + n].clone().requires_grad_(True) for n in ("w1", "w2"))
        if r + 1 > o["warmup"] and o["lambda_a"]:
            self.own[r] = merged["ctx"]
            pool = list(self.own.values())
            opt = {"adam": torch.optim.Adam, "sgd": torch.optim.SGD}[o["disc_optim"]]([w1, w2], lr=o["disc_lr"])
            for _ in range(o["disc_steps"]):
                opt.zero_grad()
                d = (-torch.log(self.judge(torch.stack(pool), pool[-1], w1, w2)).mean()
                     - torch.log(1 - self.judge(torch.stack([u["ctx"] for u in ups.values()]), pool[-1], w1, w2)).mean())
                d.backward()
                opt.step()
        for n, w in (("w1", w1), ("w2", w2)):
            self.check("discriminator", w.detach(), "r%d/down/fedappr/%s" % (r, n))


class CoCoOp(Method):
    """The prompt is an offset: the trace names the words that it is added to, and has their embeddings."""

    def prompt(self, e, offset):
        text = e.words["ctx"]
        words = self.t["words/%d/%s" % (e.bundle, text)]
        self.check("words", e.text.embedding[e.info["words"][text]], "words/%d/%s" % (e.bundle, text))
        n, own = len(words), len(offset)
        if n <= own:
            return offset + torch.cat([torch.zeros(own - n, words.shape[1], dtype=torch.float64), words])
        return torch.cat([offset + words[:own], words[own:]])

    def scores(self, e, p, test=False):
        hidden = torch.relu(F.linear(e.image, p["meta/1/w"], p["meta/1/b"]))
        shift = F.linear(hidden, p["meta/2/w"], p["meta/2/b"])
        return torch.stack([e.scale * e.text(self.prompt(e, p["ctx"] + s)) @ x for s, x in zip(shift, e.image)])


def orth(m):
    """Modified Gram-Schmidt; a column in the span of those before it becomes 0."""
    cols = []
    for x in m.T:
        whole = x.norm()
        for c in cols:
            x = x - (c @ x) * c
        cols.append(x / x.norm() if x.norm() > 1e-6 * whole else torch.zeros_like(x))
    return torch.stack(cols, 1)


class DPFPL(Method):
    private = {"local"}

    def scores(self, e, p, test=False):
        return e.scale * e.image @ e.text(p["global"] + p["local"]).T

    def release(self, e, g, noise):
        o = self.o
        if o["clip"] > 0:
            g = g * min(1.0, o["clip"] / g.norm().item()) if g.norm() > 0 else g
        return g + o["noise"] * o["clip"] * self.t[e.step + "draw/" + noise] if noise and o["noise"] else g

    def adjust(self, e, p, grads):
        o, local, g = self.o, p["local"].detach(), grads["local"]
        u = orth(local @ self.t[e.step + "draw/dpfpl/v0"])
        v = orth(local.T @ u) if o["orth_v"] else local.T @ u
        gu, gv = self.release(e, g @ v, "dpfpl/u"), self.release(e, u.T @ g, "dpfpl/v")
        both = u @ u.T @ gu @ v.T
        rebuilt = o["factor"] * (gu @ v.T + u @ gv + (both if o["sign"] == "plus" else -both))
        return {"local": rebuilt, "global": self.release(e, grads["global"], "dpfpl/global" if o["noisy"] == "all" else "")}


class PFedMoAP(Method):
    private, personal = {"gate/%s/%s" % (n, k) for n in "qkvo" for k in "wb"}, True

    def scores(self, e, p, test=False):
        o, which = self.o, ("moap/tested", "moap/tested_known") if test and self.o["test_experts"] == "turn" else ("moap/experts", "moap/known")
        own = e.text(p["ctx"])
        alone = e.scale * e.image @ own.T
        if test:  # what the server sent for the test, against what it had to send
            self.check("tested experts", self.tested(e)[0], e.test + "down/" + which[0])
            prompts, known = self.tested(e)
        else:
            prompts, known = e.down[which[0]], e.down[which[1]]
        others = [e.text(x).detach() for x, k in zip(prompts, known) if k]
        if not others:
            return alone
        step = max(1, own.shape[1] // o["gating_dim"])
        pool = lambda v: v[..., ::step]
        lin = lambda x, n: F.linear(x, p["gate/%s/w" % n], p["gate/%s/b" % n])
        keys, x = pool(torch.stack([own] + others)), pool(e.image)
        heads = max(h for h in range(1, o["heads"] + 1) if x.shape[1] % h == 0)
        split = lambda v: v.reshape(*v.shape[:-1], heads, -1)
        a = (o["kappa"] * torch.einsum("bhj,echj->bche", split(lin(x, "q")), split(lin(keys, "k")))).softmax(-1)
        mix = torch.einsum("bche,echj->bchj", a, split(lin(keys, "v"))).flatten(2)
        return e.scale * torch.einsum("bj,bcj->bc", x, lin(mix, "o")) + o["lambda"] * alone

    def loss(self, e, p):
        e.known = bool(e.down["moap/known"].any())
        return super().loss(e, p) + 0 * sum(p[n].sum() for n in self.private)

    def nobody(self, like):
        return torch.zeros(self.o["experts"] - 1, *like.shape, dtype=torch.float64), torch.zeros(self.o["experts"] - 1, dtype=torch.float64)

    def after(self, r, old, merged, ups):
        """The pool of last uploads; each client's nearest others; participants are tested with those that they had."""
        had = dict(getattr(self, "chosen", {}))
        pool = self.own
        pool.update({k: u["ctx"] for k, u in ups.items()})
        self.chosen = {}
        for k in pool:
            prompts, known = self.nobody(merged["ctx"])
            near = sorted((j for j in sorted(pool) if j != k), key=lambda j: (pool[j] - pool[k]).norm().item())
            for i, j in enumerate(near[: self.o["experts"] - 1]):
                prompts[i], known[i] = pool[j], 1
            self.chosen[k] = prompts, known
        self.turn = {k: had.get(k, self.nobody(merged["ctx"])) for k in ups} if self.o["test_experts"] == "turn" else {}

    def tested(self, e):
        return self.turn.get(e.client) or self.chosen.get(e.client) or self.nobody(e.received["ctx"])


class TRIP(Method):
    def route(self, x, e, capacity):
        """Weights [E] of one image's tokens: k-means of limited capacity from the traced starts, matched with the keys."""
        keys, starts = e.down["trip/keys"], self.t[e.turn + "constant/trip/starts"]
        n, k = len(x), len(keys)
        rooms = [int(n // k * capacity) + (i < n % k) for i in range(k)]
        c, multiplier = x[starts], torch.zeros(k, dtype=torch.float64)
        for _ in range(self.o["iters"]):
            apart = (x[:, None] - c[None]).norm(dim=-1)
            cost, name = (apart + multiplier).min(1)
            members = [[] for _ in range(k)]
            for i in torch.argsort(cost, stable=True).tolist():
                if len(members[name[i]]) < rooms[name[i]]:
                    members[name[i]].append(i)
            far = apart.min(1).values.argmax()
            new = torch.stack([x[m].mean(0) if m else x[far] for m in members])
            multiplier = torch.stack([multiplier[i] + 1e-4 * (len(m) - rooms[i]) if m else torch.zeros((), dtype=torch.float64)
                                      for i, m in enumerate(members)])
            move, c = (new - c).norm(dim=1).mean(), new
            if move < 1e-4:
                break
        like = F.normalize(c, dim=-1) @ F.normalize(keys, dim=-1).T
        best = max(itertools.permutations(range(k)), key=lambda p: sum(like[i, j].item() for i, j in enumerate(p)))
        weights = torch.zeros(k, dtype=torch.float64)
        for i, j in enumerate(best):
            weights[j] = len(members[i])
        return weights / weights.sum()

    def scores(self, e, p, test=False):
        capacity, out = self.o["capacity_test" if test else "capacity"], []
        for x, tokens in zip(e.image, e.tokens):
            ctx = torch.einsum("e,etw->tw", self.route(tokens, e, capacity), p["experts"])
            out.append(e.scale * e.text(ctx) @ x)
        return torch.stack(out)

    def loss(self, e, p):
        z = self.scores(e, p)
        total = F.cross_entropy(z, e.label)
        if self.o["alpha"]:
            texts = [e.text.sentences(s) for s in sorted(e.text.templates)] or [e.text.sentences()]
            q = (e.scale * e.image @ F.normalize(sum(texts), dim=-1).T).softmax(1)
            total = total - self.o["alpha"] * (q * z.log_softmax(1)).sum(1).mean()
        return total


METHODS = {"promptfl": Method, "coop": CoOp, "fedpha": FedPHA, "fedappr": FedAPPR, "cocoop": CoCoOp, "dpfpl": DPFPL,
           "pfedmoap": PFedMoAP, "trip": TRIP}


def clipped(grads, train):
    """torch.nn.utils.clip_grad_value_, then clip_grad_norm_."""
    if train.get("clip_value"):
        grads = {n: g.clamp(-train["clip_value"], train["clip_value"]) for n, g in grads.items()}
    if train.get("clip_norm"):
        norm = torch.stack([g.norm() for g in grads.values()]).norm()
        grads = {n: g * min(1.0, train["clip_norm"] / (norm.item() + 1e-6)) for n, g in grads.items()}
    return grads


def main(folder, checkpoints):
    info = json.load(open(folder + "/trace.json"))
    if info.get("version") != VERSION:
        sys.exit("%s has version %s; this script reads version %d" % (folder, info.get("version", 1), VERSION))
    t = safetensors(folder + "/trace.safetensors")
    c = info["config"]
    o, train = c["options"], c["train"]
    prox = o.get("fedprox", {}).get("mu", o.get("mu", 0.0)) if "fedprox" in c["with"] else 0.0
    bundles = [(Text(f, b), b) for b, f in zip(info["bundles"], checkpoints)]
    worst = {}

    def check(kind, got, name, scale=0.0):
        want = t[name].double()
        err = ((got - want).abs().max() / max(1e-6, scale, want.abs().max())).item()
        worst[kind] = max(worst.get(kind, 0.0), err)
        if not err < 1e-4:
            print("%s is off by %.2g" % (name, err))

    def subset(prefix):
        return {k[len(prefix):]: v for k, v in t.items() if k.startswith(prefix)}

    m = METHODS[c["method"]](info, t, check)
    if "fedrep" in c["with"]:
        m.personal = False
    start = subset("init/")
    for r in range(train["rounds"]):
        ups = {}
        for k, client in enumerate(info["clients"]):
            at = "r%d/c%d/" % (r, k)
            p = {n: v.clone() for n, v in subset(at + "begin/").items()}
            if not p:
                continue
            e = types.SimpleNamespace()
            e.round, e.client, e.turn, e.test = r, k, at, at + "eval/"
            e.bundle = [b["name"] for b in info["bundles"]].index(client["bundle"])
            (e.text, e.info), e.scale = bundles[e.bundle], info["bundles"][e.bundle]["logit_scale"]
            e.words = {q["name"]: q.get("words") for q in client["parameters"]}
            shared = [q["name"] for q in client["parameters"] if q["owner"] == "shared"]
            e.down, e.received = subset(at + "down/"), {**p, **start}
            for n, v in start.items():
                if o.get("start") != "own":
                    check("begin", v, at + "begin/" + n)
            for n in set(p) - set(shared):
                if n in client.get("own", {}):
                    check("begin", client["own"][n], at + "begin/" + n)
            velocity = {}
            for s in [s for s in info["steps"] if s["round"] == r and s["client"] == k]:
                e.step = at + "s%d/" % s["step"]
                for v in p.values():
                    v.requires_grad_(True)
                e.image, e.label, e.tokens = t[e.step + "image"], t[e.step + "label"], t.get(e.step + "tokens")
                assert (e.image.norm(dim=-1) - 1).abs().max() < 1e-5, "image rows are not unit rows"
                value = m.loss(e, p)
                if prox:
                    value = value + prox / 2 * sum(((p[n] - e.received[n]) ** 2).sum() for n in start)
                check("loss", value.detach().reshape(1), e.step + "loss")
                raw = dict(zip(p, torch.autograd.grad(value, list(p.values()))))
                largest = max(g.abs().max().item() for g in raw.values())
                for n, g in raw.items():
                    if e.step + "grad_raw/" + n in t:
                        check("raw gradient", g, e.step + "grad_raw/" + n, largest)
                frozen = s.get("frozen") or []
                if "fedrep" in c["with"]:  # the first passes train what stays on the client, the others what is shared
                    head = s["epoch"] < o.get("head_epochs", o.get("fedrep", {}).get("head_epochs", 1))
                    assert sorted(frozen) == sorted(n for n in p if (n in shared) == head), "%s leaves %s" % (e.step, frozen)
                elif c["method"] == "pfedmoap":
                    assert sorted(frozen) == ([] if e.known else sorted(m.private)), "%s leaves %s" % (e.step, frozen)
                grads = m.adjust(e, p, raw)
                grads = clipped({n: g for n, g in grads.items() if n not in frozen}, train)
                largest = max(g.abs().max().item() for g in grads.values())
                for n in list(p):
                    if n in frozen:
                        assert e.step + "grad/" + n not in t, e.step + " has a gradient of " + n
                        p[n] = p[n].detach()
                        check("after", p[n], e.step + "after/" + n)
                        continue
                    check("gradient", grads[n], e.step + "grad/" + n, largest)
                    g = grads[n] + train["weight_decay"] * p[n].detach()
                    velocity[n] = g if n not in velocity else train["momentum"] * velocity[n] + g
                    rate = s["lr"]
                    if c["method"] == "pfedmoap" and n in m.private and o["gating_lr"]:
                        rate = o["gating_lr"]
                    assert abs(s.get("rates", {}).get(n, s["lr"]) - rate) < 1e-12, "%s has another rate of %s" % (e.step, n)
                    p[n] = (p[n] - rate * (velocity[n] if train["momentum"] else g)).detach()
                    check("after", p[n], e.step + "after/" + n)
            for n in start:
                check("upload", p[n], at + "upload/" + n)
            ups[k] = {n: p[n] for n in start}
            client["own"], client["env"] = {n: v.detach() for n, v in p.items()}, e
        record = [x for x in info["rounds"] if x["round"] == r][0]
        assert record["merged"] == list(ups), "round %d merges %s" % (r, record["merged"])
        weights = [1.0 if o.get("weighting") == "uniform" else float(n) for n in record["examples"]]
        merged = m.merge(r, ups, [w / sum(weights) for w in weights])
        for n in merged:
            check("merged", merged[n], "r%d/merged/%s" % (r, n))
        m.after(r, start, merged, ups)
        for k, client in enumerate(info["clients"]):
            if "own" not in client or "r%d/c%d/eval/logits" % (r, k) not in t:
                continue
            e = client["env"]
            e.test = "r%d/c%d/eval/" % (r, k)
            p = dict(client["own"]) if m.personal else {**client["own"], **merged}
            for n in subset(e.test + "param/"):
                check("tested", p[n], e.test + "param/" + n)
            e.image, e.tokens = t[e.test + "image"], t.get(e.test + "tokens")
            with torch.no_grad():
                check("test scores", m.scores(e, p, test=True), e.test + "logits")
        start = merged
    for kind, err in worst.items():
        print("%-14s largest relative error %.1e" % (kind, err))
    sys.exit(any(not e < 1e-4 for e in worst.values()))


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2:])

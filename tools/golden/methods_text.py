"""Methods of text prompts: SDFed, FedPGP, FedTPG, zero-shot ensembles, and FedAPPR's terms over other base methods. See methods.py."""
import math

import torch

from methods import C, DASSL, F, PLAIN, SCALE, W, Method, Wrapper, sentences, text, unit
from methods_first import FedAPPR, FedPHA, PromptFL


class SDFed(FedPHA):
    defaults = {**FedPHA.defaults, "ratio": 0.6, "alpha": 0.8, "global_tokens": 8, "local_tokens": [8], "projector": "def1"}


class FedPGP(Method):
    shared, private = ["sigma"], ["u", "v"]
    defaults = {"tokens": 16, "rank": 8, "mu": 1.0, "temp": 0.5, "positive": "hand"}

    def init(self, name, client):
        t, b = self.o["tokens"], self.o["rank"]
        return {"sigma": (30, 0.6, t, W), "u": (31 + (client or 0), 0.6, t, b), "v": (35 + (client or 0), 0.6, b, W)}[name]

    def features(self, env, p):
        return text(p["sigma"] + p["u"] @ p["v"], env.backbone)

    def logits(self, env, p):
        return SCALE * env.x @ self.features(env, p).T

    def loss(self, env, p):
        z0, zs, z = sentences(env.backbone), text(p["sigma"], env.backbone), self.features(env, p)
        if self.o["positive"] == "code":
            z0 = sentences(env.backbone, " ".join(["X"] * self.o["tokens"] + ["{}."]))
        cos = torch.nn.CosineSimilarity(dim=-1)
        pairs = torch.stack([cos(z0, zs), cos(zs, z)], dim=1) / self.o["temp"]
        return F.cross_entropy(self.logits(env, p), env.y) + self.o["mu"] * F.cross_entropy(pairs, torch.zeros(C).long())


class FedTPG(Method):
    """The attention is torch.nn.MultiheadAttention itself."""

    defaults = {"tokens": 4, "heads": 4, "depth": 0, "mult": 4, "weighting": "uniform"}
    dim = 5

    def __init__(self, o):
        super().__init__(o)
        self.shapes = {"generator/queries": (self.o["tokens"], W), "generator/cross/norm_kv/gain": (self.dim,), "generator/cross/norm_kv/bias": (self.dim,)}
        h = self.o["mult"] * W
        for at, kv in [("generator/cross", self.dim)] + [(f"generator/self{i + 1}", W) for i in range(self.o["depth"])]:
            for layer, out, inner in (("q", W, W), ("k", W, kv), ("v", W, kv), ("o", W, W), ("ff/in", 2 * h, W), ("ff/out", W, h)):
                self.shapes |= {f"{at}/{layer}/w": (out, inner), f"{at}/{layer}/b": (out,)}
            for layer in ("norm", "ff/norm"):
                self.shapes |= {f"{at}/{layer}/gain": (W,), f"{at}/{layer}/bias": (W,)}
        self.shared = list(self.shapes)

    def init(self, name, client):
        return 40 + self.shared.index(name), 0.5, *self.shapes[name]

    def attend(self, p, at, q, kv, mask):
        n = {k[len(at) + 1:]: v for k, v in p.items() if k.startswith(at + "/")}
        out, _ = F.multi_head_attention_forward(
            q[:, None], kv[:, None], kv[:, None], W, self.o["heads"], None, torch.cat([n["q/b"], n["k/b"], n["v/b"]]), None, None, False, 0.0,
            n["o/w"], n["o/b"], key_padding_mask=mask, use_separate_proj_weight=True, q_proj_weight=n["q/w"], k_proj_weight=n["k/w"], v_proj_weight=n["v/w"])
        return out[:, 0]

    def feed(self, p, at, x):
        def norm(x):
            return F.layer_norm(x, x.shape[-1:], p[at + "/ff/norm/gain"], p[at + "/ff/norm/bias"])
        h, gate = F.linear(norm(x), p[at + "/ff/in/w"], p[at + "/ff/in/b"]).chunk(2, dim=-1)
        return x + F.linear(h * F.gelu(gate), p[at + "/ff/out/w"], p[at + "/ff/out/b"])

    def absent(self, env):
        return torch.tensor([c not in env.all_y for c in range(C)])

    def prompt(self, env, p):
        def norm(at, x):
            return F.layer_norm(x, x.shape[-1:], p[at + "/gain"], p[at + "/bias"])
        at = "generator/cross"
        x = norm(at + "/norm", p["generator/queries"])
        x = self.feed(p, at, self.attend(p, at, x, norm(at + "/norm_kv", sentences(env.backbone, "{}")), self.absent(env)[None]))
        for i in range(self.o["depth"]):
            at = f"generator/self{i + 1}"
            y = norm(at + "/norm", x)
            x = self.feed(p, at, x + self.attend(p, at, y, y, None))
        return x

    def logits(self, env, p):
        return SCALE * env.x @ text(self.prompt(env, p), env.backbone).T

    def loss(self, env, p):
        return F.cross_entropy(self.logits(env, p).masked_fill(self.absent(env), -math.inf), env.y)

    def merge(self, r, server, ups):
        weights = [1 if self.o["weighting"] == "uniform" else u.n for u in ups]
        server.shared = {n: sum(w * u.shared[n] for w, u in zip(weights, ups)) / sum(weights) for n in server.shared}


class Ensemble(Method):
    """Zero-shot CLIP with options; the templates are those of CoOp's public code."""

    defaults = {"template": "auto", "ensemble": []}
    named = {"pets": "a photo of a {}, a type of pet.", "flowers": "a photo of a {}, a type of flower.", "dtd": "{} texture.",
             "eurosat": "a centered satellite photo of {}.", "food": "a photo of {}, a type of food.", "ucf": "a photo of a person doing {}.",
             "aircraft": "a photo of a {}, a type of aircraft."}
    selected = ["itap of a {}.", "a bad photo of the {}.", "a origami {}.", "a photo of the large {}.", "a {} in a video game.",
                "art of the {}.", "a photo of the small {}."]

    def logits(self, env, p):
        e = self.o["ensemble"]
        list_ = [e] if isinstance(e, str) else e
        texts = [t for name in list_ for t in {"imagenet-7": self.selected, "none": []}.get(name, [name])]
        if self.o["template"] != "auto" or not texts:
            texts.append(self.named.get(self.o["template"], self.o["template"]).replace("auto", "a photo of a {}."))
        return SCALE * env.x @ unit(sum(sentences(env.backbone, t) for t in texts) / len(texts)).T


class Appr(Wrapper):
    """FedAPPR's loss terms and server over a base method; the discriminator is that of methods_first."""

    defaults = {**{k: v for k, v in FedAPPR.defaults.items() if k not in PromptFL.defaults}, "view": "own", "prompts": []}
    usual = ["ctx", "global", "sigma", "text/shared"]
    disc, fit = FedAPPR.disc, FedAPPR.fit

    def __init__(self, inner, o):
        super().__init__(inner, o)
        self.names = [n for n in inner.shared if n in (self.o["prompts"] or self.usual)]
        self.personal = self.o["view"] == "own" or inner.personal

    def start(self, server):
        self.inner.start(server)
        if self.o["lambda_a"]:
            server.down |= {"fedappr/w1": (20, 0.6, W, self.o["hidden"]), "fedappr/w2": (21, 0.6, self.o["hidden"], 1)}

    def tokens(self, p):
        return torch.cat([p[n] for n in self.names])

    def loss(self, env, p):
        out = self.inner.loss(env, p) + self.o["lambda_r"] * (self.tokens(p) - self.tokens(env.received)).pow(2).sum()
        if self.o["lambda_a"] and env.r + 1 > self.o["warmup"]:
            out = out - self.o["lambda_a"] * self.disc(self.tokens(p), self.tokens(env.received), env.down)[0]
        return out

    def merge(self, r, server, ups):
        self.inner.merge(r, server, ups)
        if r + 1 <= self.o["warmup"] or not self.o["lambda_a"]:
            return
        server.kept[f"fedappr/pool/{r:06d}"] = self.tokens(server.shared)
        names = sorted(n for n in server.kept if n.startswith("fedappr/pool/"))
        past = torch.stack([server.kept[n] for n in names])
        now = torch.stack([self.tokens(u.shared) for u in ups])
        server.down = {**server.down, **self.fit(server.down, past, now, self.tokens(server.shared))}


METHODS = {"sdfed": SDFed, "fedpgp": FedPGP, "fedtpg": FedTPG, "zeroshot": Ensemble}
WRAPPERS = {"appr": Appr}
PHA = {"global_tokens": 3, "local_tokens": [2, 4, 3]}
PGP = {"tokens": 3, "rank": 2}
TPG = {"tokens": 2, "heads": 2, "mult": 1}
APPR = {"lambda_a": 0.5, "lambda_r": 0.2, "hidden": 3, "warmup": 0}
FEW = {"alike": True, "sizes": [2, 3, 6]}
CASES = [
    ("sdfed", [], PHA, PLAIN),
    ("sdfed", [], {**PHA, "svd_every": "step"}, PLAIN),
    ("sdfed", [], {**PHA, "projector": "eq9", "svd_every": "round"}, DASSL),
    ("fedpgp", [], PGP, PLAIN),
    ("fedpgp", [], {**PGP, "positive": "code", "mu": 0.5, "temp": 0.2}, DASSL),
    ("fedpgp", [], {**PGP, "mu": 0.0}, PLAIN),
    ("fedtpg", [], TPG, PLAIN, FEW),
    ("fedtpg", [], {**TPG, "heads": 3, "weighting": "examples", "depth": 1}, PLAIN, {"alike": True, "sizes": [1, 3, 2]}),
    ("fedtpg", ["fedprox"], {**TPG, "tokens": 1, "mu": 0.7}, {**DASSL, "epochs": 2}, {"alike": True, "sizes": [1, 3, 2]}),
    ("zeroshot", [], {"template": "pets"}, PLAIN),
    ("zeroshot", [], {"ensemble": "imagenet-7"}, PLAIN),
    ("zeroshot", [], {"ensemble": ["imagenet-7", "a drawing of {}"], "template": "dtd"}, PLAIN),
    ("promptfl", ["appr"], {**APPR, "tokens": 3, "warmup": 1}, PLAIN),
    ("fedpha", ["appr"], {**PHA, **APPR, "projector": "exact-null", "view": "base"}, DASSL),
    ("fedpgp", ["appr"], {**PGP, **APPR, "disc_steps": 2}, PLAIN),
    ("fedotp", ["appr"], {**APPR, "tokens": 2, "iters": 5, "threshold": 0.0}, PLAIN),
    ("fedtpg", ["appr"], {**TPG, **APPR, "tokens": 1, "prompts": ["generator/queries", "generator/cross/q/w"]}, PLAIN, {"alike": True, "sizes": [1, 3, 2]}),
    ("fedpha", ["fedopt", "appr"], {**PHA, **APPR, "projector": "exact-null", "kind": "momentum", "disc_steps": 2}, PLAIN),
    ("promptfl", ["appr", "scaffold"], {**APPR, "tokens": 2, "view": "base"}, PLAIN),
    ("pfeddc", ["appr"], {**APPR, "text_tokens": 2, "vision_tokens": 1, "attention": "text"}, PLAIN, {"sizes": [1, 3, 2]}),
    ("sdfed", ["appr", "fedprox"], {**PHA, **APPR, "projector": "exact-null", "mu": 0.3, "lambda_a": 0.0}, PLAIN),
]

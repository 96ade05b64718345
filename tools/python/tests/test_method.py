"""promptfed.Method, where PyTorch is installed: methods equal their twins, and what cannot become a file is refused."""
import inspect
import json
import re
import runpy
import shutil

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="needs PyTorch")
F = torch.nn.functional

import methods  # noqa: E402
import promptfed  # noqa: E402
from conftest import REPOSITORY, small  # noqa: E402
from promptfed._losses import REPLACED  # noqa: E402

PLAIN = methods.PromptFL
THREE = {"tokens": 3, "init_std": 0.4}
# The same methods in Go; without one, the file that an earlier PyTorch has exported.
TWINS = {
    "promptfl": {"method": "promptfl"},
    "promptfl-l2": {"method": "promptfl", "options": THREE, "train.weight_decay": 0.25},
    "fedprox": {"method": "promptfl", "with": ["fedprox"], "options": {**THREE, "mu": 2}},
    "fedotp": {"method": "fedotp", "options": THREE},
    "fedotp-unrolled": {"method": "fedotp", "options": {**THREE, "iters": 8, "threshold": 0}},
    "fedpha": {"method": "fedpha", "options": {"global_tokens": 3, "local_tokens": [2], "ratio": 0.5, "init_std": 0.4,
                                                "projector": "exact-null", "svd_every": "step"}},
    "scaffold": {"method": "promptfl", "with": ["scaffold"], "options": {**THREE, "control": "path"}},
    "kgcoop": {"method": "kgcoop", "options": {**THREE, "lambda": 8, "words": ""}},
}
TRAIN = {"train.rounds": 2, "train.lr": 0.05, "train.momentum": 0, "train.weight_decay": 0, "train.batch": 4}


def trained(folder, method=None, **keys):
    """Returns the prompts and the rounds of two rounds."""
    config = small()
    del config["options"]
    run = promptfed.run(config, method, out=folder, progress=False, **{**TRAIN, **keys})
    return run.prompts, run.rounds


def same(a, b):
    assert a.keys() == b.keys() and a
    for name in a:
        np.testing.assert_allclose(a[name], b[name], atol=2e-5 * np.abs(b[name]).max(), err_msg=name)


@pytest.mark.parametrize("name", methods.METHODS)
def test_a_method_is_its_twin(name, tmp_path):
    file = methods.METHODS[name]().export(tmp_path / f"{name}.onnx")
    earlier = REPOSITORY / "federation/methods/testdata/torch" / file.name
    got, _ = trained(tmp_path / "torch", file)
    twin = TWINS.get(name, {"method": "onnx", "options.file": str(earlier)})
    want, _ = trained(tmp_path / "go", **twin)
    same(got, want)


def method(loss=None, logits=None, of=PLAIN, **declared):
    """Returns a method whose loss adds a term."""
    functions = {}
    if loss:
        functions["loss"] = lambda self, z, y: {"cross_entropy": F.cross_entropy(z, y), "more": loss(self, z, y)}
    if logits:
        functions["logits"] = logits
    return type("Mine", (of,), {**functions, **declared})()


# The gradient of 0.25 c·x is that of 0.125 |x|² where c is x without a gradient.
@pytest.mark.parametrize("constant", [
    lambda self: self.ctx.detach(), lambda self: self.ctx.data, lambda self: torch.detach(self.ctx * 1),
    lambda self: quiet(self), lambda self: self.received.ctx.detach() * 0 + quiet(self)])
def test_gradients_stop_where_pytorch_stops_them(constant, tmp_path):
    got, _ = trained(tmp_path / "a", method(lambda self, z, y: 0.25 * (constant(self) * self.ctx).sum()))
    want, _ = trained(tmp_path / "b", methods.L2())
    same(got, want)


@torch.no_grad()
def quiet(self):
    x = self.ctx
    return x + 0 * x.exp().sum()


def test_the_text_of_a_constant_prompt_is_a_constant(tmp_path):
    away = method(lambda self, z, y: self.encode_text(self.ctx.detach()).sum() + self.encode_text(quiet(self)).sum())
    got, _ = trained(tmp_path / "a", away)
    want, _ = trained(tmp_path / "b", PLAIN())
    same(got, want)


def number(x):
    return float(x)


def less(z):
    z -= 1
    return z.sum()


class Reversed(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x * 1

    @staticmethod
    def backward(ctx, gradient):
        return -gradient


LEARNED = torch.nn.Linear(3, 3)
LARGE = torch.rand(600, 512)


REFUSED = {
    "the size D, of features, became a constant of the output logits": dict(
        logits=lambda self, x: x @ self.encode_text(self.ctx).T / number(x.shape[1])),
    "the size C, classes, became a constant of the output more": dict(
        loss=lambda self, z, y: z.sum() / number(z.shape[1])),
    "the size B, images of a batch, became": dict(loss=lambda self, z, y: sum(z[i].mean() for i in range(len(y)))),
    "the size T, tokens of a prompt, became": dict(loss=lambda self, z, y: self.ctx.sum() * number(len(self.ctx))),
    "the size w, of a token, became": dict(loss=lambda self, z, y: self.ctx.unbind(1)[0].sum()),
    "the size M, patches, became": dict(loss=lambda self, z, y: self.patches.mean() * number(self.patches.shape[1])),
    "loss fails with B 10, C 3, D 96, w 64, M 16, T 6, K 2, RuntimeError: shape '[512]'": dict(
        loss=lambda self, z, y: self.ctx.reshape(512).sum()),
    "became a constant of the output merged/ctx": dict(merge=lambda self, up: {"ctx": sum(list(up.ctx))}),
    "a value of a tensor decides what is computed": dict(loss=lambda self, z, y: z.sum() if z.max() > 1 else z.mean()),
    "a value of a tensor decides": dict(loss=lambda self, z, y: z.sum() * z.mean().item()),
    "aten::median": dict(loss=lambda self, z, y: z.median(1).values.mean()),
    "index_put would keep one of the values": dict(
        loss=lambda self, z, y: torch.zeros_like(z).index_put((y,), z, accumulate=True).sum()),
    "this will cause the ONNX model to be incorrect": dict(
        loss=lambda self, z, y: torch.zeros_like(z).index_add_(0, y, z).sum()),
    "loss differs from PyTorch's by": dict(loss=lambda self, z, y: z.mean() * (2 if torch.jit.is_tracing() else 1)),
    "draws random numbers": dict(loss=lambda self, z, y: (z + torch.randn_like(z)).mean()),
    "Det (node /Det) has no definition": dict(loss=lambda self, z, y: torch.det(self.ctx @ self.ctx.T)),
    "at most 1048576 are allowed": dict(loss=lambda self, z, y: (self.ctx.sum() * LARGE).mean()),
    "loss: more has shape [10, 3]; it must be []": dict(loss=lambda self, z, y: z),
    "loss returns float for more": dict(loss=lambda self, z, y: 1.0),
    "logits: logits has shape [10]": dict(logits=lambda self, x: x.sum(1)),
    "logits: a prompt has shape [64]": dict(logits=lambda self, x: self.encode_text(self.ctx.mean(0))),
    "loss reads received.other, which Mine does not declare": dict(loss=lambda self, z, y: self.received.other.sum()),
    "finish returns 'ctx', which is not declared as": dict(finish=lambda self: {"ctx": self.ctx}),
    "merge returns 'other', which is not declared": dict(merge=lambda self, up: {"other": self.weights}),
    "merge: merged/ctx has shape [2, 6, 64]": dict(merge=lambda self, up: {"ctx": up.ctx}),
    "sub_ changes a value of the engine in place": dict(loss=lambda self, z, y: less(z)),
    "add_ changes a value": dict(loss=lambda self, z, y: self.ctx.add_(1).sum()),
    "a torch.autograd.Function has a gradient of its own": dict(loss=lambda self, z, y: Reversed.apply(z).mean()),
    "a tensor that requires a gradient would be a constant": dict(loss=lambda self, z, y: LEARNED(z.T @ z).mean()),
    "nothing reads the upload more": dict(finish=lambda self: {"more": self.ctx}, more=promptfed.Up(PLAIN.ctx)),
    "more is an upload": dict(loss=lambda self, z, y: self.more.sum(), more=promptfed.Up(PLAIN.ctx)),
    "Mine.step hides a value of the engine": dict(step=1),
    "scores are computed in tests too": dict(logits=lambda self, x: self.lr * x @ self.encode_text(self.ctx).T),
}


@pytest.mark.parametrize("why", REFUSED)
def test_what_cannot_be_a_file_is_refused(why, tmp_path):
    with pytest.raises(promptfed.Error) as e:
        method(**REFUSED[why]).export(tmp_path / "m.onnx")
    assert why in str(e.value) and "\n" not in str(e.value)
    assert not list(tmp_path.iterdir())
    if any("number" in getattr(f, "__code__", number.__code__).co_names for f in REFUSED[why].values()):
        assert "test_method.py:" in str(e.value)  # the line of float


def test_a_kept_error_stops_no_later_export(tmp_path):
    kept = []  # with its frames: PyTorch 1.13 fails where a new graph has the address of one that a frame still holds
    for _ in range(12):
        with pytest.raises(promptfed.Error, match="aten::median") as e:
            method(**REFUSED["aten::median"]).export(tmp_path / "m.onnx")
        kept.append(e.value)
        PLAIN().export(tmp_path / "m.onnx")


def test_values_exist_only_in_an_export():
    with pytest.raises(promptfed.Error, match="only while export"):
        PLAIN().ctx


NORMS = (torch.norm, torch.Tensor.norm, torch.linalg.norm, torch.linalg.vector_norm, torch.std, torch.Tensor.std)
ADDED, DIVIDED = (torch.index_add, torch.Tensor.index_add), (torch.floor_divide, torch.Tensor.floor_divide,
                                                            torch.Tensor.__floordiv__)
ARGUMENTS = {
    F.cross_entropy: [dict(), dict(label_smoothing=0.1), dict(weight=torch.rand(3)), dict(reduction="none"),
                      dict(weight=torch.rand(3), label_smoothing=0.2, reduction="sum"),
                      dict(weight=torch.rand(3), label_smoothing=0.2)],
    F.mse_loss: [dict()] + [dict(weight=torch.rand(4, 3), reduction=r) for r in ("mean", "sum")
                            if "weight" in inspect.signature(F.mse_loss).parameters],  # since PyTorch 2.6
    F.layer_norm: [dict(normalized_shape=[3]), dict(normalized_shape=[4, 3], weight=torch.rand(4, 3),
                                                    bias=torch.rand(4, 3), eps=0.1)],
    F.huber_loss: [dict(delta=0.3)], F.smooth_l1_loss: [dict(beta=0.3), dict(beta=0.0), dict(reduction="none")],
    F.binary_cross_entropy: [dict(), dict(weight=torch.rand(3))],
    F.binary_cross_entropy_with_logits: [dict(), dict(weight=torch.rand(3), pos_weight=torch.rand(3), reduction="sum")],
    F.multilabel_soft_margin_loss: [dict(), dict(weight=torch.rand(3), reduction="none")],
    F.triplet_margin_loss: [dict(), dict(swap=True, margin=0.1)], F.cosine_embedding_loss: [dict(), dict(margin=0.2)],
    **{f: [dict(dim=0, index=torch.tensor([2, 0, 2, 2]), source=torch.rand(4, 3), alpha=0.5),
           dict(dim=1, index=torch.tensor([1, 0, 1]), source=torch.rand(4, 3))] for f in ADDED},
    **{f: [dict(), dict(dim=1), dict(dim=(0, 1), keepdim=True)] for f in NORMS},
    F.pairwise_distance: [dict(), dict(keepdim=True)], torch.cdist: [dict(), dict(p=1.0)],
    F.margin_ranking_loss: [dict(margin=0.1, reduction="sum")], F.hinge_embedding_loss: [dict(margin=0.7)],
}
INPUTS = {F.layer_norm: 1, F.logsigmoid: 1, torch.expm1: 1, torch.Tensor.expm1: 1, torch.trace: 1, torch.Tensor.trace: 1,
          F.triplet_margin_loss: 3, F.cosine_embedding_loss: 3, F.margin_ranking_loss: 3,
          **dict.fromkeys(ADDED + NORMS, 1)}


@pytest.mark.parametrize("of", REPLACED, ids=lambda f: f.__name__)
def test_replaced_functions_compute_what_pytorch_does(of):
    torch.manual_seed(1)
    if of in DIVIDED:  # without gradient
        assert REPLACED[of](torch.arange(-3, 4), 2).tolist() == of(torch.arange(-3, 4), 2).tolist()
        return
    for more in ARGUMENTS.get(of, [{}]):
        x = [torch.rand(4, 3, requires_grad=True) for _ in range(INPUTS.get(of, 2))]
        with torch.no_grad():
            if of in (F.cosine_embedding_loss, F.margin_ranking_loss):
                x[2] = x[2][:, 0].round() * 2 - 1 if of is F.cosine_embedding_loss else x[2].round() * 2 - 1
            elif of in (F.soft_margin_loss, F.hinge_embedding_loss):
                x[1] = x[1].round() * 2 - 1
        if of is F.cross_entropy:
            for target in (torch.tensor([0, 2, 1, 2]), torch.rand(4, 3)):
                compare(of, [x[0], target], more)
            compare(of, [x[0], torch.tensor([0, 2, 1, 2])], {**more, "ignore_index": 2})
        else:
            compare(of, x, more)


def compare(of, x, more):
    want, got = of(*x, **more), REPLACED[of](*x, **more)
    torch.testing.assert_close(got, want)
    torch.testing.assert_close(torch.autograd.grad(got.sum(), x[0])[0], torch.autograd.grad(want.sum(), x[0])[0])
    if of in (*NORMS, torch.cdist) and more.get("p", 2) == 2:
        zero = torch.zeros(4, 3, requires_grad=True)
        norm = REPLACED[of](zero, *[torch.zeros(4, 3) for _ in x[1:]], **more)
        assert not torch.autograd.grad(norm.sum(), zero)[0].any(), "PyTorch's gradient at 0 is 0"


# PyTorch's own names of arguments.
@pytest.mark.parametrize("of, names", [(torch.std, "input"), (torch.expm1, "input"), (F.logsigmoid, "input"),
                                       (torch.trace, "input"), (torch.logaddexp, "input other"),
                                       (F.pairwise_distance, "x1 x2"), (torch.floor_divide, "input other")])
def test_replaced_functions_take_keywords(of, names):
    x = {name: torch.rand(4, 3) + 0.5 for name in names.split()}
    torch.testing.assert_close(REPLACED[of](**x), of(**x))


def test_a_saturated_probability_has_no_gradient():
    x = torch.tensor([-200.0, 200.0], requires_grad=True)
    for of in (F.binary_cross_entropy, REPLACED[F.binary_cross_entropy]):
        assert not torch.autograd.grad(of(x.sigmoid(), torch.tensor([1.0, 0.0])), x)[0].any()


LOSSES = {
    "smoothed": lambda self, z, y: F.cross_entropy(z, y, label_smoothing=0.1),
    "weighted": lambda self, z, y: F.cross_entropy(z, y, weight=1 / (1 + F.one_hot(y, z.shape[1]).sum(0))),
    "distillation": lambda self, z, y: F.kl_div(
        F.log_softmax(z / 2, 1), F.softmax(self.teacher_logits / 2, 1), reduction="batchmean"),
    "focal": lambda self, z, y: focal(F.cross_entropy(z, y, reduction="none")),
    "contrastive": lambda self, z, y: F.cross_entropy(
        self.encode_text(self.ctx) @ self.encode_text(self.received.ctx).T / 0.07, torch.arange(z.shape[1])),
    "triplet": lambda self, z, y: torch.nn.TripletMarginLoss()(
        self.encode_text(self.ctx), self.hand_text, self.encode_text(self.received.ctx)),
    "mmd": lambda self, z, y: torch.cdist(self.encode_text(self.ctx), self.hand_text).square().neg().exp().mean(),
    "decorrelated": lambda self, z, y: (F.normalize(self.ctx, dim=1) @ F.normalize(self.ctx, dim=1).T
                                        - torch.eye(self.ctx.shape[0])).square().sum(),
    "normed": lambda self, z, y: F.layer_norm(self.ctx, self.ctx.shape[-1:]).square().mean(),
    "of a class": lambda self, z, y: (self.image - self.encode_text(self.ctx)[y]).square().mean(),
    "in half precision": lambda self, z, y: z.half().mean().float() + z.bfloat16().square().mean().float(),
    "top": lambda self, z, y: z.topk(2, 1).values.mean() + z.sort(1).values.mean(),
}


def focal(loss):
    return ((1 - torch.exp(-loss)) ** 2 * loss).mean()


@pytest.mark.parametrize("of", [*LOSSES, *REPLACED], ids=lambda of: getattr(of, "__name__", of))
def test_common_losses_are_files(of, tmp_path):
    n = INPUTS.get(of, 2)

    def replaced(self, z, y):
        x = [z.softmax(1), self.teacher_logits.softmax(1), torch.ones_like(z)][:n]
        if of is F.cosine_embedding_loss:
            x[2] = x[2].mean(1)
        if of in (torch.trace, torch.Tensor.trace):
            x = [z @ z.T]
        more = {F.layer_norm: dict(normalized_shape=x[0].shape[1:]),
                **dict.fromkeys(ADDED, dict(dim=0, index=y, source=x[0]))}
        return of(*x, **more.get(of, {})).sum()
    file = method(LOSSES.get(of, replaced)).export(tmp_path / "m.onnx")
    assert (b"ReduceL2" in file.read_bytes()) or of not in (*NORMS, F.pairwise_distance, torch.cdist)


@pytest.mark.parametrize("page", ["docs/onnx-method.md", "README.md"])
def test_page(page, config, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.yaml").write_text(json.dumps({**config, "options": {}}))
    (block,) = re.findall("```python\n(.*?)```", (REPOSITORY / page).read_text(), re.S)
    names = {"promptfed": promptfed, "F": F}
    exec(block, names)
    (own,) = re.findall(r"class (\w+)\(promptfed.Method", block)
    assert len(names["run"].records) in (2, 3) and names["run"].method == own
    run = promptfed.run("mine.yaml", names[own]().export("other.onnx"), out="other", progress=False, train__rounds=1)
    assert run.method == own and "tokens" not in (run.folder / "config.yaml").read_text()


def test_own_method_is_compared(monkeypatch, tmp_path, capsys):
    shutil.copytree(REPOSITORY / "configs/demo", tmp_path / "configs/demo")
    monkeypatch.chdir(tmp_path)
    run = promptfed.run
    monkeypatch.setattr(promptfed, "run", lambda *a, **k: run(*a, **k, progress=False, train__rounds=1))
    example = REPOSITORY / "docs/examples/own_method.py"
    runpy.run_path(str(example), run_name="__main__")
    out = capsys.readouterr().out
    assert all(name in out for name in ("promptfl", "fedpha", "ensemble")) and "worst" in out
    assert len(example.read_text().splitlines()) <= 40

"""promptfed.export_backbone, where PyTorch and Pillow are installed. tools/golden/backbones.py tries models of open_clip."""
import collections
import json

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="needs PyTorch")
Image = pytest.importorskip("PIL.Image", reason="needs Pillow")

try:
    torch.zeros(1).numpy()
except RuntimeError as e:
    pytest.skip(f"this PyTorch is older than this NumPy: {e}", allow_module_level=True)

import promptfed  # noqa: E402
from promptfed import backbone  # noqa: E402

CONTEXT, WIDTH, DIM, SIZE = 32, 8, 6, 12


class Tokenizer:
    """open_clip's SimpleTokenizer, with one merge that no text has: each letter is a token, the last of a word another."""

    def __init__(self):
        printable = [*range(ord("!"), ord("~") + 1), *range(ord("¡"), ord("¬") + 1), *range(ord("®"), ord("ÿ") + 1)]
        order = printable + [b for b in range(256) if b not in printable]
        self.number = {b: i for i, b in enumerate(order)}
        self.bpe_ranks = {("z", "q"): 0}

    def __call__(self, texts):
        out = torch.zeros(len(texts), CONTEXT, dtype=torch.long)
        for row, text in zip(out, texts):
            words = text.lower().replace(".", " .").split()
            ids = [self.number[ord(c)] + (256 if i == len(w) - 1 else 0) for w in words for i, c in enumerate(w)]
            row[:len(ids) + 2] = torch.tensor([513, *ids, 514])
        return out


class Resize:
    size, interpolation = SIZE, "bilinear"

    def __call__(self, image):
        side = SIZE / min(image.size)
        return image.resize([int(n * side) for n in image.size], Image.BILINEAR)


class CenterCrop:
    size = SIZE

    def __call__(self, image):
        left, top = [int(round((n - SIZE) / 2)) for n in image.size]
        return image.crop((left, top, left + SIZE, top + SIZE))


class Normalize:
    mean, std = (0.5, 0.4, 0.3), (0.2, 0.3, 0.4)

    def __call__(self, image):
        x = np.asarray(image.convert("RGB"), dtype=np.float32) / 255
        return torch.from_numpy((x - np.array(self.mean, np.float32)) / np.array(self.std, np.float32)).permute(2, 0, 1)


class Preprocess:
    transforms = [Resize(), CenterCrop(), Normalize()]

    def __call__(self, image):
        for t in self.transforms:
            image = t(image)
        return image


class Model(torch.nn.Module):
    """A text tower that no other program knows: a recurrence of its tokens, with an image tower of one convolution."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(3)
        self.words = torch.nn.Embedding(515, WIDTH)
        self.positions = torch.nn.Parameter(0.3 * torch.randn(CONTEXT, WIDTH))
        self.mix = torch.nn.Linear(WIDTH, WIDTH)
        self.out = torch.nn.Linear(WIDTH, DIM)
        self.patches = torch.nn.Conv2d(3, DIM, 4, 4)
        self.logit_scale = torch.nn.Parameter(torch.tensor(2.0))

    def encode_image(self, pixels):
        return torch.tanh(self.patches(pixels)).mean((2, 3))

    def encode_text(self, ids):
        x = torch.tanh(self.mix(self.words(ids) + self.positions)).cumsum(1)
        return self.out(x[torch.arange(x.shape[0]), ids.argmax(1)])


@pytest.mark.parametrize("exporter", backbone._exporters())
def test_a_model_becomes_a_backbone(exporter, config, tmp_path):
    if exporter == "dynamo":
        pytest.importorskip("onnxscript", reason="needs onnxscript")
    folder = promptfed.export_backbone(Model(), Preprocess(), Tokenizer(), tmp_path / "own", exporter=exporter)
    manifest = json.loads((tmp_path / "own/bundle.json").read_text())
    assert manifest["logit_scale"] == pytest.approx(np.exp(2)) and set(manifest["files"]) >= {"witness.safetensors"}
    run = promptfed.run({**config, "backbones": [folder]}, out=tmp_path / "run", progress=False)
    assert len(run.records) == 3


def test_what_is_no_backbone_is_refused(tmp_path):
    class Wrong(Model):
        """Its features depend on what the exporter makes a constant."""

        calls = 0

        def encode_text(self, ids):
            Wrong.calls += 1
            return super().encode_text(ids) + float(Wrong.calls % 3)

    class NoTable(Model):
        def encode_text(self, ids):
            return self.out((ids[:, :WIDTH] % 7).float())

    Crop = collections.namedtuple("Crop", "transforms")
    for want, arguments in {
        "difference of text features": (Wrong(), Preprocess(), Tokenizer()),
        "has neither encode_image nor": (torch.nn.Linear(1, 1), Preprocess(), Tokenizer()),
        "looks up no torch.nn.Embedding": (NoTable(), Preprocess(), Tokenizer()),
    }.items():
        with pytest.raises(promptfed.Error, match=want):
            promptfed.export_backbone(*arguments, tmp_path / "none", exporter="torchscript")
        assert not list(tmp_path.iterdir())
    with pytest.raises(promptfed.Error, match="preprocess shows no mean and no std"):
        backbone._transform(Crop([Resize()]), tmp_path)
    with pytest.raises(promptfed.Error, match="is neither open_clip's tokenizer nor one of transformers"):
        backbone._vocabulary(object(), tmp_path)
    with pytest.raises(promptfed.Error, match="give open_clip:NAME"):
        backbone.load("EVA02-B-16")
    with pytest.raises(promptfed.Error, match="no exporter 'jit': choose torchscript or dynamo"):
        promptfed.export_backbone(Model(), Preprocess(), Tokenizer(), tmp_path / "none", exporter="jit")
    (tmp_path / "taken").mkdir()
    with pytest.raises(promptfed.Error, match="taken exists"):
        promptfed.export_backbone(Model(), Preprocess(), Tokenizer(), tmp_path / "taken")

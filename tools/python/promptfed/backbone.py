"""Writes a CLIP of PyTorch as a backbone: both towers as ONNX files, with what they need beside them.

    python -m promptfed.backbone open_clip:EVA02-B-16 --pretrained merged2b_s8b_b131k --out bundles/eva02
    python -m promptfed.backbone transformers:google/siglip-base-patch16-224 --out bundles/siglip
"""
from __future__ import annotations

import argparse
import contextlib
import copy
import gzip
import hashlib
import json
import logging
import os
import sys
import tempfile
import traceback
import warnings
from pathlib import Path
from typing import Any, Callable, Dict, Iterator, List, Optional, Sequence, Tuple, Union

import numpy as np
try:
    import torch
    import torch.nn.functional as F
except ImportError as e:
    if __name__ != "__main__":
        raise
    sys.exit(f"promptfed.backbone: it needs PyTorch ({e}): pip install promptfed[torch]")

from ._onnx import _version, save
from ._program import Error, ask, program

WITNESS = "witness.safetensors"
"""What the model computes in PyTorch; `promptfed check` compares it with what the program computes."""

_PICTURE = "witness.png"
_TEXTS = ["a photo of a cat.", "the quick brown fox", "sea lion"]
_CLASSES = ["cat", "sea lion", "red panda"]
_LABELS = [1]
_TOKENS = 3
_OPSETS = {"torchscript": 17, "dynamo": 18}


def export_backbone(model: torch.nn.Module, preprocess: Any, tokenizer: Any, out: Union[str, "os.PathLike[str]"], *,
                    name: str = "", source: str = "", exporter: Optional[str] = None) -> str:
    """Writes a model as a backbone and returns the folder.

    model: has encode_image and encode_text (open_clip, OpenAI's CLIP), or get_image_features and get_text_features
    (transformers). logit_scale and logit_bias are its parameters, where it has them.
    preprocess: open_clip's transform of images for inference, or an image processor of transformers.
    tokenizer: open_clip's, or one of transformers.
    exporter: "torchscript" or "dynamo"; both are tried where none is given.

    The program computes features of an image and of texts, a loss and the gradient of a prompt with the new files. If one
    differs from PyTorch's by more than 1e-4 of the largest value, Error is raised and there is no folder.
    """
    target = _new(out)
    program()  # it is needed at the end
    if exporter not in (None, *_OPSETS):
        raise Error(f"there is no exporter {exporter!r}: choose {' or '.join(_OPSETS)}")
    towers = _Towers(model, preprocess, tokenizer)
    target.parent.mkdir(parents=True, exist_ok=True)
    failed: List[str] = []
    for kind in [exporter] if exporter else _exporters():
        with tempfile.TemporaryDirectory(prefix=f".{target.name}-", dir=target.parent) as parent:
            folder = Path(parent, target.name)
            folder.mkdir()
            try:
                towers.write(folder, kind, name or target.name, source)
                ask(["check", folder])
                folder.rename(target)
                return str(target)
            except Error as e:
                failed.append(f"{kind}: {e}")
    raise Error(f"{target} was not written: " + "; ".join(failed))


def _new(out: Union[str, "os.PathLike[str]"]) -> Path:
    """Returns the path of a folder that does not exist yet."""
    if os.path.lexists(out):
        raise Error(f"{os.fspath(out)} exists: remove it, or choose another folder")
    return Path(out)


def _exporters() -> Sequence[str]:
    return tuple(_OPSETS) if _version() >= (2, 5) else ("torchscript",)


class _Towers:
    """The towers of a model, on the CPU in float32, and what they compute."""

    def __init__(self, model: torch.nn.Module, preprocess: Any, tokenizer: Any):
        self.model = copy.deepcopy(model).float().cpu().eval().requires_grad_(False)
        self.tokenizer, self.preprocess = tokenizer, preprocess
        self.hugging_face = not hasattr(model, "encode_image")
        if self.hugging_face and not hasattr(model, "get_image_features"):
            raise Error(f"{type(model).__name__} has neither encode_image nor get_image_features: give a model with "
                        "features of images and of texts")
        self.texts = self.ids(_TEXTS)
        self.table, self.looks_up = self._embedding()

    def image(self, pixels: torch.Tensor) -> torch.Tensor:
        """Returns the features [B,D] of pixels [B,3,S,S]."""
        if self.hugging_face:
            return _features(self.model.get_image_features(pixel_values=pixels))
        return _features(self.model.encode_image(pixels))

    def text(self, ids: torch.Tensor, mask: Optional[torch.Tensor] = None) -> torch.Tensor:
        """Returns the features [C,D] of token ids [C,L]."""
        if not self.hugging_face:
            return _features(self.model.encode_text(ids))
        more = {} if mask is None else {"attention_mask": mask}
        return _features(self.model.get_text_features(input_ids=ids, **more))

    def ids(self, texts: Sequence[str]) -> torch.Tensor:
        """Returns the token ids [n,L] of texts, filled up to the context."""
        if not self.hugging_face:
            return self.tokenizer(list(texts)).long()
        config = getattr(self.model.config, "text_config", self.model.config)
        length = min(config.max_position_embeddings, getattr(self.tokenizer, "model_max_length", 1 << 30))
        out = self.tokenizer(list(texts), padding="max_length", truncation=True, max_length=length)
        return torch.tensor(out["input_ids"])

    def mask(self, ids: torch.Tensor) -> Optional[torch.Tensor]:
        """Returns the attention mask [n,L] of ids for models that are used with one: ones up to the end token."""
        if not self.hugging_face or "attention_mask" not in self.tokenizer.model_input_names:
            return None
        end, pad = self.tokenizer.eos_token_id, self.tokenizer.pad_token_id
        if end is None:
            end = self.tokenizer.sep_token_id
        if end == pad:  # the first one ends the text
            return ((ids == end).long().cumsum(1) - (ids == end).long() < 1).long()
        return (ids != pad).long()

    def _embedding(self) -> Tuple[torch.Tensor, torch.nn.Module]:
        """Returns the rows of all tokens [V,w] and the module that looks them up: the first one that gets the ids."""
        found: List[torch.nn.Module] = []

        def see(module: torch.nn.Module, args: Any, _: Any) -> None:
            if args and isinstance(args[0], torch.Tensor) and args[0].shape == self.texts.shape and torch.equal(
                    args[0].long(), self.texts):
                found.append(module)
        hooks = [m.register_forward_hook(see) for m in self.model.modules() if isinstance(m, torch.nn.Embedding)]
        with torch.no_grad():
            self.text(self.texts, self.mask(self.texts))
            for h in hooks:
                h.remove()
            if not found:
                raise Error("the text tower looks up no torch.nn.Embedding with its token ids: prompts have no place")
            return found[0](torch.arange(found[0].num_embeddings)), found[0]

    @contextlib.contextmanager
    def embedded(self, rows: torch.Tensor) -> Iterator[None]:
        """The text tower takes these rows [C,L,w] in place of those of its tokens."""
        hook = self.looks_up.register_forward_hook(lambda *_: rows)
        try:
            yield
        finally:
            hook.remove()

    def write(self, folder: Path, exporter: str, name: str, source: str) -> None:
        """Writes a bundle and what the model computes."""
        pixels = self.picture(folder / _PICTURE)
        save(folder / WITNESS, self.witness(pixels), {"texts": json.dumps(_TEXTS), "classes": json.dumps(_CLASSES),
                                                      "labels": json.dumps(_LABELS)})
        ids, mask = self.texts, self.mask(self.texts)
        rows = self.table[ids]
        text: Dict[str, Any] = {"file": "text/model.onnx", "embeddings": "embeddings", "ids": "ids",
                                "output": "features"}
        inputs = {"embeddings": rows, "ids": ids}
        if mask is not None:
            text["attention_mask"], inputs["mask"] = "mask", mask
        _export(_Image(self), {"pixels": torch.cat([pixels, pixels.flip(3)])}, folder / "image", exporter)
        _export(_Text(self), inputs, folder / "text", exporter)
        save(folder / "tokens.safetensors", {"token_embedding": self.table})
        manifest: Dict[str, Any] = {
            "name": name, "source": source, "image": {"file": "image/model.onnx", "input": "pixels",
                                                      "output": "features"},
            "text": text, "token_embedding": {"file": "tokens.safetensors", "tensor": "token_embedding"},
            "context_length": ids.shape[1], "logit_scale": self.scale(), "logit_bias": self.bias(),
            "preprocess": _transform(self.preprocess, folder), **_vocabulary(self.tokenizer, folder)}
        files = {p.relative_to(folder).as_posix(): p for p in sorted(folder.rglob("*")) if p.is_file()}
        manifest["files"] = {n: {"size": p.stat().st_size, "sha256": _digest(p)} for n, p in files.items()}
        (folder / "bundle.json").write_text(json.dumps({k: v for k, v in manifest.items() if v not in ("", None)},
                                                       indent=2) + "\n", encoding="utf-8")

    def scale(self) -> float:
        value = getattr(self.model, "logit_scale", None)
        return 100.0 if value is None else float(torch.as_tensor(value).exp().reshape(()))

    def bias(self) -> Optional[float]:
        value = getattr(self.model, "logit_bias", None)
        return None if value is None else float(torch.as_tensor(value).reshape(()))

    def picture(self, path: Path) -> torch.Tensor:
        """Writes a picture, larger than the tower's images, and returns its pixels [1,3,S,S]."""
        from PIL import Image

        size = self.pixels(Image.new("RGB", (8, 8))).shape[-1]
        y, x = np.mgrid[0:size + size // 2, 0:2 * size + 3]
        waves = np.stack([np.sin(x / 9 + k) * np.cos(y / (7 + 4 * k)) for k in range(3)], 2)
        image = Image.fromarray((127.5 + 127 * waves).astype(np.uint8))
        image.save(path)
        return self.pixels(image)

    def pixels(self, image: Any) -> torch.Tensor:
        """Returns the pixels [1,3,S,S] of a picture."""
        if self.hugging_face:
            values = self.preprocess(images=image, return_tensors="np")["pixel_values"]
            return torch.as_tensor(np.asarray(values)).float()
        return self.preprocess(image)[None].float()

    def witness(self, pixels: torch.Tensor) -> Dict[str, torch.Tensor]:
        """Returns features of an image, of texts and of prompted classes, the loss and the gradient of the prompt."""
        word, *own = self.ids(["x", *(f"x {c}." for c in _CLASSES)]).tolist()  # the names as they are behind a word
        name = next(i for i, (a, b) in enumerate(zip(word, own[0])) if a != b)
        start = int(bool((self.texts[:, 0] == self.texts[0, 0]).all()))
        ids = torch.tensor([(r[:start] + [r[start]] * _TOKENS + r[name:])[:len(r)] for r in own])
        noise = torch.randn(_TOKENS, self.table.shape[1], generator=torch.Generator().manual_seed(1))
        prompt = (self.table.std() * noise).requires_grad_()
        rows = self.table[ids]
        rows = torch.cat([rows[:, :start], prompt.expand(len(rows), -1, -1), rows[:, start + _TOKENS:]], 1)
        with torch.no_grad():
            image, text = self.image(pixels), self.text(self.texts, self.mask(self.texts))
        with self.embedded(rows):
            prompts = self.text(ids, self.mask(ids))
        logits = self.scale() * F.normalize(image, dim=-1) @ F.normalize(prompts, dim=-1).T
        loss = F.cross_entropy(logits, torch.tensor(_LABELS))
        gradient, = torch.autograd.grad(loss, prompt)
        return dict(pixels=pixels, image=image, text=text, prompt=prompt.detach(), prompts=prompts.detach(),
                    loss=loss.detach().reshape(1), gradient=gradient)


def _features(output: Any) -> torch.Tensor:
    """Returns the features of a model's output, which is a tuple or an object in some versions."""
    output = getattr(output, "pooler_output", output)
    return output[0] if isinstance(output, (tuple, list)) else output


class _Image(torch.nn.Module):
    """The image tower, as an exporter wants it."""

    def __init__(self, towers: _Towers):
        super().__init__()
        self.model, self.towers = towers.model, towers

    def forward(self, pixels: torch.Tensor) -> torch.Tensor:
        return self.towers.image(pixels)


class _Text(_Image):
    """The text tower from embeddings; end tokens and padding are found in the ids."""

    def forward(self, embeddings: torch.Tensor, ids: torch.Tensor, mask: Optional[torch.Tensor] = None) -> torch.Tensor:
        with self.towers.embedded(embeddings):
            return self.towers.text(ids, mask)


def _export(module: torch.nn.Module, inputs: Dict[str, torch.Tensor], folder: Path, exporter: str) -> None:
    """Exports a tower with an open first size. Weights that are too large for the file go into files beside it."""
    folder.mkdir()
    module = copy.deepcopy(module)  # exporters may change weights
    path, arguments = str(folder / "model.onnx"), tuple(inputs.values())
    names = dict(input_names=list(inputs), output_names=["features"], opset_version=_OPSETS[exporter])
    try:
        with warnings.catch_warnings(), torch.no_grad(), _plain():
            warnings.simplefilter("ignore")
            if exporter == "dynamo":
                batch = torch.export.Dim("batch")
                torch.onnx.export(module, arguments, path, dynamo=True, dynamic_shapes=tuple({0: batch} for _ in inputs),
                                  **names)
            else:
                legacy = {"dynamo": False} if _version() >= (2, 5) else {}
                axes = {n: {0: "batch"} for n in [*inputs, "features"]}
                torch.onnx.export(module, arguments, path, dynamic_axes=axes, **legacy, **names)
    except Exception as e:
        traceback.clear_frames(e.__traceback__)  # PyTorch mistakes a later graph for one that a frame still holds
        raise Error(f"PyTorch cannot export the {folder.name} tower: {type(e).__name__}: {_first_line(e)}") from e


def _first_line(e: Exception) -> str:
    return (str(e).strip().splitlines() or [""])[0]


@contextlib.contextmanager
def _plain() -> Iterator[None]:
    """Hides what exporters print, and makes attention of operators that they know."""
    mha = getattr(torch.backends, "mha", None)
    fast = mha.get_fastpath_enabled() if mha else False
    logger = logging.getLogger("torch.onnx")
    level = logger.level
    try:
        if mha:
            mha.set_fastpath_enabled(False)
        logger.setLevel(logging.ERROR)
        with open(os.devnull, "w", encoding="utf-8") as null, contextlib.redirect_stdout(null), \
                contextlib.redirect_stderr(null):
            yield
    finally:
        logger.setLevel(level)
        if mha:
            mha.set_fastpath_enabled(fast)


def _digest(path: Path) -> str:
    h = hashlib.sha256()
    with open(path, "rb") as f:
        for block in iter(lambda: f.read(1 << 20), b""):
            h.update(block)
    return h.hexdigest()


def _transform(preprocess: Any, folder: Path) -> Optional[Dict[str, Any]]:
    """Returns the key preprocess of a bundle; None where a processor of transformers writes its own file."""
    if hasattr(preprocess, "save_pretrained"):
        preprocess.save_pretrained(folder)
        return None
    out: Dict[str, Any] = {"crop": False}
    for step in getattr(preprocess, "transforms", []):
        kind, size = type(step).__name__, getattr(step, "size", None)
        size = size[0] if isinstance(size, (list, tuple)) and len(set(size)) == 1 else size
        if kind in ("Resize", "ResizeKeepRatio"):
            out["size"] = size
            out["resize"] = str(getattr(step.interpolation, "value", step.interpolation))
            out["longest"] = kind == "ResizeKeepRatio" and step.longest == 1
        elif kind in ("CenterCrop", "CenterCropOrPad"):
            out["crop"] = kind == "CenterCrop"
            fill = getattr(step, "fill", 0)
            out["fill"] = int(fill[0] if isinstance(fill, (list, tuple)) else fill)
        elif kind == "Normalize":
            out["mean"], out["std"] = [[float(v) for v in x] for x in (step.mean, step.std)]
    missing = {"size", "mean", "std"} - set(out)
    if missing:
        raise Error(f"preprocess shows no {' and no '.join(sorted(missing))}: give a torchvision Compose with Resize and "
                    "Normalize, or an image processor of transformers")
    return {k: v for k, v in out.items() if v or k == "crop"}


def _vocabulary(tokenizer: Any, folder: Path) -> Dict[str, Any]:
    """Writes the vocabulary and returns the keys of a bundle that describe it."""
    inner = getattr(tokenizer, "tokenizer", tokenizer)
    if hasattr(inner, "save_pretrained"):
        inner.save_pretrained(folder)
    elif hasattr(inner, "bpe_ranks"):
        merges = sorted(inner.bpe_ranks, key=inner.bpe_ranks.get)
        with open(folder / "merges.txt.gz", "wb") as f:
            f.write(gzip.compress("\n".join(["#version: 0.2", *map(" ".join, merges)]).encode(), mtime=0))
    else:
        raise Error(f"{type(tokenizer).__name__} is neither open_clip's tokenizer nor one of transformers")
    out: Dict[str, Any] = {} if hasattr(inner, "save_pretrained") else {"tokenizer": "merges.txt.gz"}
    clean = getattr(getattr(tokenizer, "clean_fn", None), "__name__", "").split("_clean_")[-1]
    if clean in ("whitespace", "canonicalize") or clean == "lower" and hasattr(inner, "save_pretrained"):
        out["texts"] = {"clean": clean}
    return out


def load(spec: str, pretrained: str = "") -> Tuple[torch.nn.Module, Any, Any, str]:
    """Loads LIBRARY:NAME and returns model, preprocess, tokenizer and where they come from."""
    library, _, name = spec.partition(":")
    loaders: Dict[str, Callable[[], Tuple[Any, Any, Any]]] = {
        "open_clip": lambda: _open_clip(name, pretrained), "transformers": lambda: _transformers(name)}
    if library not in loaders or not name:
        raise Error(f"{spec!r} is no model: give open_clip:NAME, open_clip:hf-hub:ORG/NAME or transformers:ORG/NAME")
    try:
        model, preprocess, tokenizer = loaders[library]()
    except ImportError as e:
        raise Error(f"{spec} needs {library} ({e}): pip install {library}"
                    f"{'_torch' if library == 'open_clip' else ''}") from None
    except Error:
        raise
    except Exception as e:  # an unknown name or tag, or a download that fails
        raise Error(f"{library} cannot load {name}: {type(e).__name__}: {_first_line(e)}") from e
    version = getattr(sys.modules[library], "__version__", "")
    return model, preprocess, tokenizer, " ".join(x for x in (library, version, name, pretrained) if x)


def _open_clip(name: str, pretrained: str) -> Tuple[Any, Any, Any]:
    import open_clip

    if not pretrained and ":" not in name:  # hf-hub: and local-dir: name weights
        tags = ", ".join(open_clip.list_pretrained_tags_by_model(name)) or "none"
        raise Error(f"open_clip:{name} names no weights: give --pretrained TAG, of {tags}, or a file of weights")
    model, _, preprocess = open_clip.create_model_and_transforms(name, pretrained=pretrained or None)
    return model, preprocess, open_clip.get_tokenizer(name)


def _transformers(name: str) -> Tuple[Any, Any, Any]:
    import transformers

    return (transformers.AutoModel.from_pretrained(name), transformers.AutoImageProcessor.from_pretrained(name),
            transformers.AutoTokenizer.from_pretrained(name))


def main(arguments: Optional[Sequence[str]] = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m promptfed.backbone",
                                     description="Write a CLIP of PyTorch as a backbone of promptfed.")
    parser.add_argument("model", help="open_clip:NAME, open_clip:hf-hub:ORG/NAME or transformers:ORG/NAME")
    parser.add_argument("--pretrained", default="", metavar="TAG", help="weights of open_clip, or a file of them")
    parser.add_argument("--out", required=True, metavar="DIR", help="folder of the new bundle")
    parser.add_argument("--exporter", choices=sorted(_OPSETS), help="PyTorch's exporter (default: both are tried)")
    given = parser.parse_args(arguments)
    try:
        _new(given.out)  # before the model is loaded
        model, preprocess, tokenizer, source = load(given.model, given.pretrained)
        folder = export_backbone(model, preprocess, tokenizer, given.out, source=source, exporter=given.exporter)
    except Error as e:
        print(f"promptfed.backbone: {e}", file=sys.stderr)
        return 1
    print(f"{folder} equals the model in PyTorch; use it as --set backbones={folder}")
    return 0


if __name__ == "__main__":
    sys.exit(main())

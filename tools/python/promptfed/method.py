"""A federated method as a loss in PyTorch, exported to the file of `method: onnx`."""
from __future__ import annotations

import os
import tempfile
from pathlib import Path
from typing import Any, Dict, Mapping, Optional, Union

import torch

from ._onnx import onnx_file, save
from ._program import Error, ask
from ._trace import Trace

Size = Union[int, str]
Tensors = Mapping[str, torch.Tensor]


class _Declared:
    """A tensor that a method declares. In the functions of a method, the attribute is a torch.Tensor."""

    kind = ""
    name = ""

    def __set_name__(self, owner: type, name: str) -> None:
        self.name = name.rstrip("_")  # as in global_

    def __get__(self, method: Any, owner: type = None) -> Any:
        return self if method is None else method._now.input(f"{self.kind}/{self.name}")

    def describe(self) -> Dict[str, Any]:
        """Returns the entry of the file's metadata, without what is zero."""
        return {key: value for key, value in vars(self).items() if value and key not in ("name", "private")}


class Parameter(_Declared):
    """A learnable tensor. Its first value is normal, with deviation std around value.

    Sizes are numbers, or "C" (classes), "D" (of features), "w" (of a token) and "T" (tokens). A private one stays on
    its client; the server averages the others.
    """

    kind = "param"

    def __init__(self, *shape: Size, private: bool = False, std: float = 0.02, value: float = 0.0, tokens: int = 0):
        self.shape, self.std, self.value, self.tokens = list(shape), std, value, tokens
        self.private, self.owner = private, "private" if private else "shared"


class Prompt(Parameter):
    """A learnable prompt [T,w]; the class name is at its end, middle or front."""

    def __init__(self, tokens: int = 16, private: bool = False, std: float = 0.02, value: float = 0.0,
                 position: str = "end", read_offset: int = 0):
        super().__init__("T", "w", private=private, std=std, value=value, tokens=tokens)
        self.layout = {"position": position, "read_offset": read_offset}

    def describe(self) -> Dict[str, Any]:
        return {key: value for key, value in super().describe().items() if key != "layout"}


class _Like(_Declared):
    def __init__(self, *shape: Union[Size, Parameter], std: float = 0.0, value: float = 0.0):
        self.of = shape[0] if shape and isinstance(shape[0], Parameter) else None
        self.shape, self.std, self.value = [] if self.of else list(shape), std, value

    def describe(self) -> Dict[str, Any]:
        out = {key: value for key, value in super().describe().items() if key != "of"}
        return {**out, "like": self.of.name} if self.of else {**out, "shape": self.shape}


class State(_Like):
    """A tensor that a client keeps between its turns, of a shape or like a parameter; `finish` returns the next one."""

    kind = "state"


class Down(_Like):
    """A tensor that the server sends to all clients; `merge` returns the next one."""

    kind = "down"


class Up(_Like):
    """A tensor that a client uploads beside the shared parameters: `finish` returns it, `merge` reads it."""

    kind = "up"

    def __get__(self, method: Any, owner: type = None) -> Any:
        if method is None:
            return self
        raise Error(f"{self.name} is an upload: finish returns it, and merge reads uploads.{self.name}")


class Noise(_Declared):
    """New random numbers in every step, from the run's seed: "normal", or "uniform" from 0 to 1."""

    kind = "noise"

    def __init__(self, *shape: Size, distribution: str = "normal"):
        self.shape, self.distribution = list(shape), distribution

    def describe(self) -> Dict[str, Any]:
        return {"shape": self.shape, "distribution": self.distribution}


class _Input:
    """A value of the engine."""

    def __init__(self, name: str, doc: str):
        self.name, self.__doc__ = name, doc

    def __get__(self, method: Any, owner: type = None) -> Any:
        return self if method is None else method._now.input(self.name)


class Values:
    """Values of the parameters at another time, or uploads, by name."""

    def __init__(self, method: "Method", kind: str):
        self._method, self._kind = method, kind

    def __getattr__(self, name: str) -> torch.Tensor:
        if name.startswith("_"):
            raise AttributeError(name)
        name = name.rstrip("_")
        up = self._kind == "uploads" and isinstance(self._method._declared().get(name), Up)
        return self._method._now.input(f"{self._kind}/{'up/' if up else ''}{name}")

    def encode_text(self, prompt: torch.Tensor) -> torch.Tensor:
        """Class features of a prompt as it was at that time, constants."""
        return self._method._now.text(prompt, self._kind + "/")


class Method:
    """A federated method. A subclass declares tensors and computes `logits` and `loss`.

        class FedProx(promptfed.Method):
            prompt = promptfed.Prompt(tokens=16)

            def logits(self, image):
                return self.cosine(image, self.encode_text(self.prompt))

            def loss(self, logits, label):
                return {"cross_entropy": F.cross_entropy(logits, label),
                        "proximal": (self.prompt - self.received.prompt).square().sum()}

    docs/onnx-method.md describes what each function may read.
    """

    #: Tested parameters: "global" or "personal"; by default personal if there are private ones.
    view = ""

    image = _Input("image", "Image features [B,D] of the batch, unit rows.")
    scale = _Input("scale", "exp(logit_scale) of the backbone.")
    hand_text = _Input("hand", "Class features [C,D] of hand-written prompts.")
    patches = _Input("patches", "Features [B,M,D] of patches.")
    teacher_logits = _Input("teacher/logits", "Class scores [B,C] of the received parameters, constants.")
    num_examples = _Input("client/n", "Examples of the client.")
    num_classes = _Input("classes/n", "Classes.")
    num_clients = _Input("clients/n", "Clients of the run; in merge.")
    weights = _Input("weights", "Examples [K] of the clients of the round; in merge.")
    step = _Input("step", "Steps that the client has done in this turn.")
    round = _Input("round", "The round, from 0.")
    lr = _Input("lr", "The learning rate.")

    _trace: Optional[Trace] = None

    def logits(self, image: torch.Tensor) -> torch.Tensor:
        """Returns class scores [B,C] of image features [B,D], unit rows. Tests compute them too."""
        raise NotImplementedError("a method needs logits(self, image)")

    def loss(self, logits: torch.Tensor, label: torch.Tensor) -> Union[torch.Tensor, Tensors]:
        """Returns a scalar, or summands by name."""
        return {"cross_entropy": self.cross_entropy(logits)}

    def finish(self) -> Tensors:
        """Returns the next value of State and the value of Up by name, after a client's turn."""
        return {}

    def merge(self, uploads: Values) -> Tensors:
        """Returns the server's parameters and the next value of Down by name; `uploads.NAME` is [K,...]. Otherwise
        the server takes the mean, weighted by examples."""
        return {}

    @property
    def received(self) -> "Values":
        """Parameters that the server sent, `self.received.NAME`, constants."""
        return Values(self, "received")

    @property
    def _uploads(self) -> "Values":
        return Values(self, "uploads")

    @property
    def before(self) -> "Values":
        """Parameters that the client last trained, `self.before.NAME`, constants."""
        return Values(self, "before")

    def encode_text(self, prompt: torch.Tensor, position: str = "end", read_offset: int = 0) -> torch.Tensor:
        """Class features [C,D] of a prompt [T,w] or [C,T,w], or [B,C,D] of one for each image, [B,T,w]. Position and
        offset are for computed prompts."""
        return self._now.text(prompt, "", {"position": position, "read_offset": read_offset})

    def cosine(self, image: torch.Tensor, text: torch.Tensor) -> torch.Tensor:
        """Class scores [B,C] as scale * image @ text.T, a function of the engine that wrappers see."""
        return self._now.function("cosine", [image, text], [("B", image.shape[0]), ("C", text.shape[0])])

    def cross_entropy(self, logits: torch.Tensor) -> torch.Tensor:
        """Cross entropy with the labels, a function of the engine that wrappers and train.loss may replace."""
        return self._now.function("cross_entropy", [logits], [])

    def project(self, prompt: torch.Tensor, onto: torch.Tensor, **options: Any) -> torch.Tensor:
        """FedPHA's projection of a prompt, by the parameter `onto`."""
        return self._now.function("project", [prompt, onto], [("", prompt.shape[0]), ("w", prompt.shape[1])], options)

    def transport(self, similarity: torch.Tensor, **options: Any) -> torch.Tensor:
        """FedOTP's transport plan of similarities [N,B,C,M], a constant."""
        shape = similarity.shape
        return self._now.function("transport", [similarity], [(int(shape[0]), shape[0]), ("B", shape[1]),
                                                              ("C", shape[2]), ("M", shape[3])], options)

    def export(self, path: Union[str, "os.PathLike[str]"]) -> Path:
        """Writes the method's file, and lets the program check it. A method that the program refuses, in which a size
        became a constant, or of which the file computes something else than PyTorch, is an Error."""
        path, (content, values) = Path(path), onnx_file(self)
        with tempfile.TemporaryDirectory(prefix="promptfed-") as folder:
            new = Path(folder) / path.with_suffix(".onnx").name
            new.write_bytes(content)
            save(new.with_suffix(".witness.safetensors"), values)
            try:
                ask(["check", new])
            except Error as e:
                raise Error(str(e).replace(str(new), str(path))) from None
        path.write_bytes(content)
        return path

    @property
    def _now(self) -> Trace:
        if self._trace is None:
            raise Error("values of a method exist only while export calls logits, loss, finish and merge")
        return self._trace

    @classmethod
    def _declared(cls) -> Dict[str, _Declared]:
        """Declared tensors by name, those of base classes first."""
        out: Dict[str, _Declared] = {}
        for c in reversed(cls.__mro__):
            for name, value in vars(c).items():
                if c is not Method and name in vars(Method) and isinstance(vars(Method)[name], (_Input, property)):
                    raise Error(f"{cls.__name__}.{name} hides a value of the engine; choose another name")
                if isinstance(value, _Declared):
                    out[value.name] = value
        return out

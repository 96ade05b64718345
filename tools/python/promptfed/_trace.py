"""Calls the functions of a promptfed.Method with symbols of the engine's values."""
from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Any, Callable, Dict, Iterable, List, Mapping, Sequence, Tuple, Union
from unittest.mock import patch

import torch
import torch.nn.functional as F
from torch.overrides import TorchFunctionMode

from ._losses import REPLACED
from ._program import Error

Axis = Tuple[Union[int, str], int]  # the name of a dynamic axis, or its size, and the size of the example
_SHAPES = {"image": "BD", "label": "B", "hand": "CD", "patches": "BMD", "teacher/logits": "BC", "weights": "K"}
_CONVERSIONS = ("__bool__", "__float__", "__int__", "__index__", "item", "tolist", "numpy", "__array__")


class _Identity(torch.autograd.Function):
    """A copy that stays in the file, so that it can have a name of its own."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        return x.clone()

    @staticmethod
    def symbolic(g: Any, x: Any) -> Any:
        return g.op("Identity", x)


_Identity.apply = _Identity.apply  # of its own, while a trace refuses that of others


def _own_gradient(*_: Any) -> None:
    raise Error("a torch.autograd.Function has a gradient of its own, which a file cannot hold; with detach, "
                "a + (b - a).detach() has the value of b and the gradient of a")


def _constant(x: torch.Tensor) -> torch.Tensor:
    if x.requires_grad:
        raise Error("a tensor that requires a gradient would be a constant of the file; declare a promptfed.Parameter, "
                    "or call requires_grad_(False) before")
    return x


class _Mode(TorchFunctionMode):
    """Sees the functions that a method calls: gradients stop where PyTorch would stop them."""

    def __init__(self, trace: "Trace"):
        super().__init__()
        self.trace = trace

    def __torch_function__(self, func: Callable, types: Any, args: Tuple = (), kwargs: Dict = None) -> Any:
        kwargs, name = kwargs or {}, getattr(func, "__name__", "")
        if self.trace.copying:
            return func(*args, **kwargs)
        self.trace.calls[name] = _caller()
        if name in _CONVERSIONS:
            if self.trace.given is None:
                raise Error("a value of a tensor decides what is computed, but the file holds one computation; "
                            "use torch.where")
            self.trace.places.append(self.trace.calls[name])
        if name == "__setitem__" or re.fullmatch("[a-z].*[^_]_", name) and name != "requires_grad_":
            if id(args[0]) in self.trace.named:
                raise Error(f"{name} changes a value of the engine in place; make a new tensor")
        if name in ("index_put", "index_put_") and (kwargs.get("accumulate") or len(args) > 3 and args[3]):
            raise Error(f"{name} would keep one of the values of equal indices in the file; use index_add")
        func = REPLACED.get(func, func)
        if func in (torch.Tensor.detach, torch.detach, torch.Tensor.data.__get__):
            return self.trace.detach(args[0])
        _each(_constant, [*args, *kwargs.values()])
        if torch.is_grad_enabled():
            return func(*args, **kwargs)
        out = func(*_each(self.trace.detach, args), **{k: _each(self.trace.detach, v) for k, v in kwargs.items()})
        _each(self.trace.constant, out)
        return out


def _each(do: Callable, x: Any) -> Any:
    """Replaces each tensor in lists and tuples."""
    if isinstance(x, torch.Tensor):
        return do(x)
    if type(x) in (list, tuple):
        return type(x)(_each(do, part) for part in x)
    return x


class Trace:
    """One call of a method's functions: the inputs that they read, and the outputs that they make."""

    def __init__(self, method: Any, sizes: Mapping[str, int], given: Dict[str, torch.Tensor] = None):
        self.method, self.sizes, self.given = method, sizes, given
        self.declared = method._declared()
        self.inputs: Dict[str, torch.Tensor] = {}
        self.axes: Dict[str, Dict[int, str]] = {}
        self.outputs: Dict[str, torch.Tensor] = {}
        self.functions: Dict[str, Dict[str, Any]] = {}
        self.texts: Dict[str, Dict[str, Any]] = {}
        self.detached: Dict[int, torch.Tensor] = {}
        self.attached: Dict[int, torch.Tensor] = {}  # what a constant is the value of
        self.named: Dict[int, str] = {}
        self.constants: Dict[int, torch.Tensor] = {}
        self.kept: List[torch.Tensor] = []  # identities stay unique while tensors live
        self.places: List[str] = []  # where sizes or values became Python numbers
        self.calls: Dict[str, str] = {}  # where functions are called
        self.where, self.trains, self.copying = "", True, False
        self.lengths = sorted({p.tokens for p in self.declared.values() if p.kind == "param"})
        self.random = torch.Generator().manual_seed(sum(sizes.values()))

    def run(self) -> None:
        """Calls the functions of the method."""
        old, self.method._trace = self.method._trace, self
        try:
            with torch.enable_grad(), _Mode(self), patch.object(torch.autograd.Function, "apply", _own_gradient):
                self.losses()
                self.trains = False
                self.results("finish", self.method.finish, {"state": "next/state/", "up": "up/"})
                self.results("merge", lambda: self.method.merge(self.method._uploads),
                             {"param": "merged/", "down": "next/down/"})
        finally:
            self.method._trace = old
        unread = [d.name for d in self.declared.values() if d.kind == "up"]
        if unread and not self.merges():
            raise Error(f"nothing reads the upload {unread[0]}: merge must return a parameter or a tensor of Down")

    def merges(self) -> bool:
        return any(name.startswith(("merged/", "next/down/")) for name in self.outputs)

    def losses(self) -> None:
        self.where = "logits"
        logits = self.method.logits(self.input("image"))
        self.output("logits", logits, [self.sizes["B"], self.sizes["C"]])
        logits = self.outputs["logits"]  # which wrappers may replace
        self.named[id(logits)], self.where = "logits", "loss"
        terms = self.method.loss(logits, self.input("label"))
        total = None
        for name, term in (terms.items() if isinstance(terms, Mapping) else [("", terms)]):
            name = name.replace(" ", "_")
            if "/" in name or name in ("logits", "loss"):
                raise Error(f"a summand of the loss is called {name!r}; use another name, without /")
            if name:
                self.output(name, term, [])
            total = term if total is None else total + term
        self.output("loss", total, [])

    def results(self, where: str, function: Callable[[], Mapping[str, torch.Tensor]], kinds: Mapping[str, str]) -> None:
        self.where = where
        for name, value in function().items():
            d = self.declared.get(name.rstrip("_"))
            if d is None or d.kind not in kinds:
                raise Error(f"{where} returns {name!r}, which is not declared as {' or '.join(kinds)}")
            self.output(kinds[d.kind] + d.name, value, [size for _, size in self.shape(d)])

    def shape(self, d: Any) -> List[Axis]:
        """Returns axes of a declared tensor: names of dynamic ones, or numbers, with example sizes."""
        d = getattr(d, "of", None) or d
        out: List[Axis] = []
        for size in d.shape:
            if size == "T" and not hasattr(d, "tokens"):
                raise Error(f"{d.name}: T in the shape is the length of a parameter; write State(self.prompt), or a number")
            if size == "T":
                at = self.lengths.index(d.tokens)
                out.append(("T" + str(d.tokens), self.sizes["T"] + 4 * at))
            else:
                out.append((size, size if isinstance(size, int) else self.sizes.get(size, 2)))
        return out

    def input(self, name: str, axes: Sequence[Axis] = None, live: bool = False) -> torch.Tensor:
        """Returns an input of the file."""
        if name not in self.inputs:
            kind, _, rest = name.partition("/")
            live = live or kind == "param"
            d = self.declared.get(rest[3:] if name.startswith("uploads/up/") else rest)
            if axes is None and name in _SHAPES:
                axes = [(s, self.sizes[s]) for s in _SHAPES[name]]
            elif axes is None and kind in ("param", "received", "before", "state", "down", "noise", "uploads"):
                if d is None:
                    raise Error(f"{self.where} reads {kind}.{rest}, which {type(self.method).__name__} does not "
                                "declare")
                axes = [("K", self.sizes["K"])] * (kind == "uploads") + self.shape(d)
            axes = axes or []
            self.axes[name] = {i: s or f"{name}.{i}" for i, (s, _) in enumerate(axes) if isinstance(s, str)}
            if self.given is not None:
                x = self.given[name]
            elif name == "label":
                x = torch.randint(self.sizes["C"], (self.sizes["B"],), generator=self.random)
            else:
                x = torch.rand([int(n) for _, n in axes], generator=self.random) + 0.5
                x = F.normalize(x - 0.5, dim=-1) if axes and axes[-1][0] == "D" else x  # as features are
            self.inputs[name] = x
            self.named[id(x)] = name
            if not live:
                self.constant(x)
        return self.inputs[name] if torch.is_grad_enabled() else self.detach(self.inputs[name])

    def output(self, name: str, value: torch.Tensor, shape: Sequence[int] = None) -> None:
        """Adds an output of the file."""
        if not isinstance(value, torch.Tensor):
            raise Error(f"{self.where} returns {type(value).__name__} for {name}; it must be a tensor")
        if self.given is None and shape is not None and list(value.shape) != list(shape):
            raise Error(f"{self.where}: {name} has shape {list(value.shape)}; it must be {list(shape)}, "
                        f"with {self.described()}")
        self.outputs[name] = self.copy(value)
        self.named.setdefault(id(value), name)
        self.kept.append(value)

    def described(self) -> str:
        return ", ".join(f"{s} {n}" for s, n in self.sizes.items())

    def copy(self, x: torch.Tensor) -> torch.Tensor:
        self.copying = True  # the copy is no function of the method
        try:
            return _Identity.apply(x)
        finally:
            self.copying = False

    def constant(self, x: torch.Tensor) -> torch.Tensor:
        self.constants[id(x)] = x
        return x

    def detach(self, x: torch.Tensor) -> torch.Tensor:
        """Returns x as a constant for gradients."""
        if not self.trains or not x.is_floating_point() or id(x) in self.constants:
            return x
        if id(x) not in self.detached:
            name = f"detach/{len(self.detached)}"
            y = self.outputs[name] = self.copy(x)
            self.detached[id(x)], self.attached[id(y)], self.named[id(y)] = self.constant(y), x, name
        return self.detached[id(x)]

    def unique(self, name: str, names: Iterable[str]) -> str:
        taken, i = set(names), 1
        out = name
        while out in taken:
            i += 1
            out = f"{name}_{i}"
        return out

    def function(self, function: str, of: Sequence[torch.Tensor], axes: Sequence[Axis],
                 options: Mapping[str, Any] = {}) -> torch.Tensor:
        """Returns the value of a function of the engine."""
        key = self.unique(function, self.functions)
        names = []
        for i, x in enumerate(of):
            if id(x) not in self.named:
                self.output(f"of/{key}/{i}", x)
            names.append(self.named[id(x)])
        self.functions[key] = {"function": function, "of": names, **({"options": dict(options)} if options else {})}
        return self.input("function/" + key, axes, live=function != "transport")

    def text(self, prompt: torch.Tensor, at: str, layout: Mapping[str, Any] = {}) -> torch.Tensor:
        """Returns class features of a prompt."""
        if id(prompt) in self.attached:  # one pass through the text tower is enough
            return self.detach(self.text(self.attached[id(prompt)], at, layout))
        of, sizes = self.named.get(id(prompt), ""), [int(n) for n in prompt.shape]
        kind, _, name = of.partition("/")
        if kind in ("received", "before") and not at:
            at, kind = kind + "/", "param"
        if kind == "function" or kind == "param" and name in self.declared:
            d = self.declared.get(name)
            layout = getattr(d, "layout", layout) if kind == "param" else layout
        elif kind != "prompt":
            name = self.unique("computed", [n[7:] for n in self.outputs if n.startswith("prompt/")])
            self.output("prompt/" + name, prompt)
            self.named[id(prompt)] = "prompt/" + name
        layout = {k: v for k, v in layout.items() if v and v != "end"}
        if self.texts.setdefault(name, layout) != layout:
            raise Error(f"{self.where}: prompt {name} is read with two layouts; compute a second prompt")
        axes: List[Axis] = [("C", self.sizes["C"]), ("D", self.sizes["D"])]
        if len(sizes) == 3 and sizes[0] == self.sizes["B"]:
            axes.insert(0, ("B", self.sizes["B"]))
        if len(sizes) not in (2, 3) or sizes[-1] != self.sizes["w"]:
            raise Error(f"{self.where}: a prompt has shape {sizes}; it must be [T,w], [B,T,w] or [C,T,w], "
                        f"with {self.described()}")
        return self.input(f"text/{at}{name}", axes, live=not at)

    def metadata(self) -> Dict[str, Any]:
        """Returns the metadata of the file."""
        by_kind: Dict[str, Dict[str, Any]] = {}
        for d in self.declared.values():
            by_kind.setdefault(d.kind, {})[d.name] = d.describe()
        private = any(d.private for d in self.declared.values() if d.kind == "param")
        out: Dict[str, Any] = {
            "version": 1, "name": type(self.method).__name__,
            "parameters": [{"name": n, **d} for n, d in by_kind.pop("param", {}).items()], **by_kind,
            "texts": {n: layout for n, layout in self.texts.items() if layout}, "functions": self.functions,
            "detach": [n for n in self.outputs if n.startswith("detach/")],
            "mean": "" if self.merges() else "examples",
            "view": self.method.view or ("personal" if private else "")}
        return {key: value for key, value in out.items() if value or key == "parameters"}


def foreign(file: str, *roots: str) -> bool:
    """Reports whether a file belongs to PyTorch or this package, or lies below roots."""
    here = Path(file).resolve()
    return any(Path(root).resolve() in here.parents for root in roots or (torch.__path__[0], Path(__file__).parent))


def _caller() -> str:
    """Returns the line of the method that calls PyTorch, or nothing where this package does."""
    frame = sys._getframe(2)
    while foreign(frame.f_code.co_filename, torch.__path__[0]):
        frame = frame.f_back
    return "" if foreign(frame.f_code.co_filename) else place(frame.f_code.co_filename, frame.f_lineno)


def place(file: str, line: int) -> str:
    """Returns a line of a file or of a notebook's cell, for an error."""
    return f"line {line} of the cell" if "ipykernel_" in file else f"{Path(file).name}:{line}"

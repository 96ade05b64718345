"""Exports the graph of a promptfed.Method with PyTorch's exporter, and refuses sizes that became constants."""
from __future__ import annotations

import ctypes
import io
import json
import re
import traceback
import warnings
from pathlib import Path
from typing import Any, Dict, List, Mapping, Optional, Sequence, Tuple

import torch

from ._program import Error
from ._trace import Trace, foreign, place

_MAX_FILE = 1 << 20
_OPSET = 17
# Sizes of two examples: a size that the trace holds as a number makes the two files differ. All sizes of an example
# differ from each other, and have divisors, as those of towers do.
_SIZES = {"B": (10, 14), "C": (3, 5), "D": (96, 160), "w": (64, 128), "M": (16, 36), "T": (6, 8), "K": (2, 7)}
_MEANING = {"B": "images of a batch", "C": "classes", "D": "of features", "w": "of a token", "M": "patches",
            "T": "tokens of a prompt", "K": "uploads"}


class _Module(torch.nn.Module):
    """The graph of a method, as the exporter wants it."""

    def __init__(self, method: Any, sizes: Mapping[str, int], inputs: Sequence[str], outputs: Sequence[str]):
        super().__init__()
        self.method, self.sizes, self.inputs, self.wanted = method, sizes, inputs, outputs
        self.places: List[str] = []

    def forward(self, *values: torch.Tensor) -> Tuple[torch.Tensor, ...]:
        torch._C._jit_set_onnx_log_enabled(False)  # errors would print whole graphs; the exporter sets it at its start
        trace = Trace(self.method, self.sizes, dict(zip(self.inputs, values)))
        trace.run()
        self.places = sorted(set(trace.places) - {""})[:3]
        return tuple(trace.outputs[name] for name in self.wanted)


def _graph(method: Any, sizes: Mapping[str, int], only: str = "") -> Tuple[bytes, Trace, List[str]]:
    """Returns the ONNX file of example sizes, and where sizes became Python numbers."""
    trace = Trace(method, sizes)
    at = f"with {trace.described()}, "
    try:
        trace.run()
        outputs = [only] if only else list(trace.outputs)
        trace.where, at = "the export", ""
        module = _Module(method, sizes, list(trace.inputs), outputs)
        axes: Dict[str, Dict[int, str]] = dict(trace.axes)
        for name in outputs:
            axes[name] = {i: f"{name}.{i}" for i in range(trace.outputs[name].dim())}
        with warnings.catch_warnings(), io.BytesIO() as f:
            warnings.simplefilter("ignore")
            warnings.filterwarnings("error", ".*cause the ONNX model to be incorrect")
            legacy = {"dynamo": False} if _version() >= (2, 5) else {}  # the exporter that both versions have
            torch.onnx.export(module, tuple(trace.inputs.values()), f, input_names=list(trace.inputs),
                              output_names=outputs, dynamic_axes=axes, opset_version=_OPSET, **legacy)
            content = f.getvalue()
    except Error as e:
        raise Error(f"{type(method).__name__}: {e}{_line(e)}") from None
    except Exception as e:  # of the method's code, or of the exporter
        first = (str(e).strip().splitlines() or [""])[0].split(". Please ")[0]
        operator = re.search(r"'aten::(?:linalg_)?(\w+)'", first)
        line = trace.calls.get(operator.group(1), "") if operator else ""
        line = f" ({line})" if line else _line(e)
        if trace.where == "the export":
            traceback.clear_frames(e.__traceback__)  # PyTorch mistakes a later graph for one that a frame still holds
        raise Error(f"{type(method).__name__}: {trace.where} fails {at}{type(e).__name__}: {first}{line}") from e
    return content, trace, module.places


def onnx_file(method: Any) -> Tuple[bytes, Dict[str, torch.Tensor]]:
    """Returns the file of a method, after a comparison of the graphs of two sets of sizes, and example values of its
    inputs with those that PyTorch computes for its outputs."""
    first = {s: pair[0] for s, pair in _SIZES.items()}
    content, trace, _ = _graph(method, first)
    if content != _graph(method, {s: pair[1] for s, pair in _SIZES.items()})[0]:
        for size, (_, other) in _SIZES.items():
            for output in trace.outputs:
                here = _graph(method, first, output)[0]
                there, _, places = _graph(method, {**first, size: other}, output)
                if here != there:
                    at = f" (numbers are made at {', '.join(places)})" if places else ""
                    raise Error(f"{type(method).__name__}: the size {size}, {_MEANING[size]}, became a constant of the "
                                f"output {output}{at}; compute with x.shape as it is, or with tensors")
        raise Error(f"{type(method).__name__}: its graph depends on values of tensors; use torch.where")
    entry = _field(1, b"promptfed.method") + _field(2, json.dumps(trace.metadata()).encode())
    content += _field(14, entry)  # metadata_props of ModelProto; the package onnx is not needed
    if len(content) > _MAX_FILE:
        raise Error(f"{type(method).__name__}: the file would have {len(content)} bytes, at most {_MAX_FILE} are "
                    "allowed; make large constants smaller, or parameters")
    return content, {**trace.outputs, **trace.inputs}


def _field(number: int, payload: bytes) -> bytes:
    """A length-delimited field of a protobuf message."""
    out = bytearray()
    for value in (number << 3 | 2, len(payload)):
        while value > 127:
            out.append(value & 127 | 128)
            value >>= 7
        out.append(value)
    return bytes(out) + payload


def save(path: Path, tensors: Dict[str, torch.Tensor], metadata: Optional[Dict[str, str]] = None) -> None:
    """Writes a safetensors file of float32 and int64 tensors."""
    flat = {n: t.detach().to(torch.float32 if t.is_floating_point() else torch.int64).contiguous()
            for n, t in tensors.items()}
    header: Dict[str, Any] = {"__metadata__": metadata} if metadata else {}
    end = 0
    for n, t in flat.items():
        dtype, size = "F32" if t.is_floating_point() else "I64", t.numel() * t.element_size()
        header[n] = {"dtype": dtype, "shape": list(t.shape), "data_offsets": [end, end + size]}
        end += size
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as f:
        f.write(len(text).to_bytes(8, "little") + text)
        for t in flat.values():
            f.write(ctypes.string_at(t.data_ptr(), t.numel() * t.element_size()))  # also where PyTorch lacks NumPy


def _version() -> Tuple[int, ...]:
    return tuple(int(n) for n in torch.__version__.split("+")[0].split(".")[:2])


def _line(e: BaseException) -> str:
    """Returns the line of the method in which an error arose."""
    at, trace = "", e.__traceback__
    while trace is not None:
        if not foreign(trace.tb_frame.f_code.co_filename):
            at = f" ({place(trace.tb_frame.f_code.co_filename, trace.tb_lineno)})"
        trace = trace.tb_next
    return at

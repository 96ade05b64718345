"""Exports the methods of tools/python/tests/methods.py with PyTorch, for the tests in Go; needs bin/promptfed.

    python3 tools/golden/method_file.py
"""
import os
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "tools/python"), str(ROOT / "tools/python/tests")]
os.environ["PATH"] = f"{ROOT / 'bin'}{os.pathsep}{os.environ['PATH']}"

from methods import METHODS  # noqa: E402

for name, method in METHODS.items():
    method().export(ROOT / "federation/methods/testdata/torch" / f"{name}.onnx")

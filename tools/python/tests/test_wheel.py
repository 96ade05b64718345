"""The wheel, installed into an empty environment, where only the program itself runs."""
import os
import pathlib
import subprocess
import sys
import zipfile

import pytest

from conftest import REPOSITORY

WHEEL = os.environ.get("WHEEL")  # another one than that of make wheel


@pytest.fixture(scope="module")
def wheel():
    found = [pathlib.Path(WHEEL).resolve()] if WHEEL else sorted(REPOSITORY.glob("build/wheel/*.whl"))
    assert len(found) == 1, "make wheel builds build/wheel"
    return found[0]


def test_contents(wheel):
    with zipfile.ZipFile(wheel) as z:
        names = [n.split("/", 1)[1] for n in z.namelist() if ".data/" in n or ".dist-info/" in n]
    licences = [n for n in names if n.startswith("licenses/")]
    assert {"scripts/promptfed", "licenses/LICENSE"} <= set(names)
    assert any(n.endswith("onnxruntime/ThirdPartyNotices.txt") for n in licences) and len(licences) > 50
    assert wheel.name.split("-")[2:4] == ["py3", "none"] and "linux_" in wheel.name or "macosx_" in wheel.name


def test_in_an_empty_environment(wheel, tmp_path):
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", tmp_path / "venv"], check=True)
    pip = [sys.executable, "-m", "pip", "--python", tmp_path / "venv/bin/python"]
    subprocess.run([*pip, "install", "--quiet", "--no-index", "--no-deps", wheel], check=True)
    program = tmp_path / "venv/bin/promptfed"
    assert program.read_bytes()[:2] != b"#!"  # no Python starts it

    def call(*arguments, code=0):
        p = subprocess.run([program, *arguments], cwd=tmp_path, env={"HOME": str(tmp_path)}, encoding="utf-8",
                           stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        assert p.returncode == code, p.stdout
        return p.stdout

    assert call("--version").startswith("promptfed ")
    assert str(tmp_path / "venv/lib/promptfed/libonnxruntime") in call("doctor")
    said = call("run", REPOSITORY / "configs/demo/3-promptfl.yaml", "--out", "one", "--rounds", "2", "--clients", "2",
                "--set", "partition.kind=iid", "--set", "backbones=[tiny-vit-b32]", "--set", "data.generator.train=8",
                "--set", "data.generator.test=4", "--set", "data.generator.classes=[circle,square,star,house]")
    assert "written to one" in said and (tmp_path / "one/summary.json").exists()
    assert "cannot connect" in call("status", "https://127.0.0.1:9", code=1)
    left = subprocess.run([*pip, "uninstall", "--quiet", "--yes", "promptfed"], check=True)
    assert left.returncode == 0 and not program.exists() and not (tmp_path / "venv/lib/promptfed").exists()

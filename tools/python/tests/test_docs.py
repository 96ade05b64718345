"""The Python of docs/python.md runs as printed."""
import json
import re
import shutil

import promptfed
from conftest import REPOSITORY


def test_page(config, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.yaml").write_text(json.dumps({**config, "name": "mine", "method": "promptfl"}))
    shutil.copy(REPOSITORY / "models/preprocess/testdata/bit.png", "photo.png")
    blocks = re.findall("```python\n(.*?)```", (REPOSITORY / "docs/python.md").read_text(), re.S)
    assert len(blocks) == 3
    names = {}
    for block in blocks:
        exec(block, names)
    assert len(names["run"].records) == 5 and len(names["sweep"]) == 4
    assert isinstance(promptfed.load("runs"), promptfed.Sweep)

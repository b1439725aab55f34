"""The examples on the page of this room run."""

import re
from pathlib import Path

PAGE = Path(__file__).resolve().parents[2] / "docs" / "batchnorm.md"


def test_examples_run(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    blocks = re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    assert len(blocks) >= 5
    names: dict = {}
    for block in blocks:
        exec(compile(block, str(PAGE), "exec"), names)
    assert names["cells"].cells == 382
    assert names["rank_condition"](names["X"], recenter=True).attainable == 20

"""The commands that README.md shows run as they stand (./demo and ./test themselves excepted, which stand indented)."""

import re
import subprocess

import pytest
from conftest import ROOT, focus_binary

BLOCKS = re.findall(r"^```sh\n(.*?)^```$", (ROOT / "README.md").read_text(), flags=re.DOTALL | re.MULTILINE)


def test_there_are_commands():
    assert BLOCKS


@pytest.mark.parametrize("block", [pytest.param(b, marks=[pytest.mark.smollm2] if "smollm2" in b else []) for b in BLOCKS])
def test_block(block, tmp_path):
    """Runs a block in a folder that looks like the project's root, so that what it writes goes elsewhere."""
    for entry in ("data", "adapters", "examples", ".cache"):
        if (ROOT / entry).exists():
            (tmp_path / entry).symlink_to(ROOT / entry)
    (tmp_path / "build").mkdir()
    (tmp_path / "build/release").symlink_to(focus_binary().parent.parent)
    script = "shopt -s expand_aliases\nset -e\n" + block
    result = subprocess.run(["bash", "-c", script], cwd=tmp_path, capture_output=True, text=True, timeout=900,
                            stdin=subprocess.DEVNULL)
    assert result.returncode == 0, result.stderr

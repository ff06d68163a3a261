"""The two commands refuse what they do not know, before doing anything."""

import subprocess

import pytest
from conftest import ROOT


@pytest.mark.parametrize("command", ["./demo", "./test"])
def test_unknown_argument_is_a_usage_error(command):
    result = subprocess.run([command, "--qiuck"], cwd=ROOT, capture_output=True, text=True, timeout=60)
    assert result.returncode == 2
    assert "--qiuck" in result.stderr and "usage" in result.stderr
    assert result.stdout == ""

"""The quick demonstration: every key of its summary, figures that make sense, and a second run that does nothing again."""

import json
import subprocess
import sys

from conftest import ROOT

KEYS = ["model", "steps", "seconds", "ppl_full", "ppl_window", "ppl_random_groups", "ppl_focus", "copy_nll_full", "copy_nll_focus",
        "pairs_kept", "pairs_kept_copy", "dominance_max", "leak_max_abs_diff", "adapter_bytes", "sample"]


def run_demo():
    result = subprocess.run([sys.executable, ROOT / "scripts/demo.py", "--quick"], capture_output=True, text=True, timeout=900,
                            stdin=subprocess.DEVNULL)
    assert result.returncode == 0, result.stdout + result.stderr
    return result.stdout, json.loads((ROOT / "demo-out/summary.json").read_text())


def test_quick_demo():
    _, summary = run_demo()
    assert list(summary) == KEYS
    assert summary["ppl_window"] > summary["ppl_random_groups"] > summary["ppl_focus"] > 0.98 * summary["ppl_full"]
    assert 0.1 < summary["pairs_kept"] < 0.4 and 0.1 < summary["pairs_kept_copy"] < 0.5
    assert summary["leak_max_abs_diff"] <= 1e-4
    assert 1 / 64 <= summary["dominance_max"] < 0.5
    assert summary["steps"] > 0 and summary["seconds"] > 0 and summary["adapter_bytes"] > 0 and summary["sample"]
    again, same = run_demo()
    assert same == summary and again.count("done before") == 6

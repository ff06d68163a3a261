"""What the tests share: where the built binary is, and how it is run.

FOCUS_BUILD is the build folder (default build/release). Tests marked smollm2 need scripts/fetch_smollm2.sh to have run.
"""

import os
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
SMOLLM2 = ROOT / ".cache/models/smollm2-135m-instruct"
STORIES = ROOT / "data/models/stories260K"


def pytest_configure(config):
    # Threads that spin while they wait would keep those of other programs from running on a busy machine.
    os.environ.setdefault("OMP_WAIT_POLICY", "passive")
    config.addinivalue_line("markers", "smollm2: needs SmolLM2-135M-Instruct (scripts/fetch_smollm2.sh)")


def focus_binary() -> Path:
    return (ROOT / os.environ.get("FOCUS_BUILD", "build/release") / "bin/focus").resolve()


def library() -> Path:
    return focus_binary().parent.parent / "lib/libfocus.so"


@pytest.fixture(scope="session")
def focus():
    """Runs the real binary: focus("eval", "--model", path, ...) -> CompletedProcess with text output."""
    binary = focus_binary()
    if not binary.exists():
        pytest.fail(f"{binary} is not built")

    def run(*arguments, timeout=900, **options):
        command = [str(binary), *map(str, arguments)]
        return subprocess.run(command, capture_output=True, text=True, timeout=timeout, stdin=subprocess.DEVNULL, **options)

    return run

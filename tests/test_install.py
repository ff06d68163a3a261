"""The installed CMake package, used by the example in examples/consumer as any other project would."""

import subprocess

from conftest import ROOT, library


def run(*command):
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True, timeout=900)
    assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"
    return done.stdout


def test_example_builds_against_the_installed_package(tmp_path):
    build = library().parent.parent
    run("cmake", "--install", build, "--prefix", tmp_path / "prefix")
    run("cmake", "-G", "Ninja", "-S", ROOT / "examples/consumer", "-B", tmp_path / "build", "-DCMAKE_BUILD_TYPE=Release",
        f"-DCMAKE_PREFIX_PATH={tmp_path / 'prefix'}")
    run("cmake", "--build", tmp_path / "build")
    assert "largest difference to dense" in run(tmp_path / "build/consumer")
    assert not list((tmp_path / "prefix").rglob("testing.h"))

"""Hostile and mistaken input to the real binary: an error in our own words, never a crash, a hang or a library's exception."""

import gzip
import json
import os
import re
import shutil
import signal
import subprocess
import time

import numpy as np
import pytest
import torch
from conftest import ROOT, STORIES, focus_binary
from safetensors.numpy import load_file, save_file
from test_cli import RUN_FAILED, USAGE, refused

GREEDY = ["--prompt", "Once", "-n", 2, "--quiet"]
LIBRARY_TALK = re.compile(r"json\.exception|filesystem error|std::|Traceback|IntArrayRef|linalg|weights_only|basic_string|bad_alloc")


def clean(result, code, *mentions):
    refused(result, code, *mentions)
    assert not LIBRARY_TALK.search(result.stderr), result.stderr


@pytest.fixture()
def model(tmp_path):
    return shutil.copytree(STORIES, tmp_path / "model")


@pytest.fixture()
def generate(focus):
    def run(model, *flags, timeout=120):
        return focus("generate", "--model", model, *GREEDY, *flags, timeout=timeout)

    return run


def adapter_config(**fields):
    return {"peft_type": "FOCUS", "format_version": 2, "base_model_name_or_path": "m", "base_fingerprint": "0" * 16,
            "module": "model.layers.{}.self_attn", "layers_to_transform": [0], "hidden_size": 64, "list_sets": 4, "groups": 8,
            "groups_per_token": 2, "window": 8, "sinks": 1, "group_dim": 4, "tau": 0.1, "sinkhorn_iters": 10, "shared": False,
            "symmetric": False, "global_group": False, "dtype": "float32"} | fields


@pytest.fixture()
def adapter(tmp_path):
    """A folder that has what an adapter must have; its weights are empty."""
    folder = tmp_path / "adapter"
    folder.mkdir()
    (folder / "adapter_config.json").write_text(json.dumps(adapter_config()))
    save_file({}, folder / "adapter_model.safetensors")
    return folder


class TestJson:
    def nested(self, file, name, depth):
        content = json.loads(file.read_text())
        text = json.dumps(content | {name: "HERE"}).replace('"HERE"', "[" * depth + "]" * depth)
        file.write_text(text)

    @pytest.mark.parametrize("depth", [200, 2_000_000])
    def test_deep_config(self, generate, model, depth):
        self.nested(model / "config.json", "unknown", depth)
        clean(generate(model), RUN_FAILED, "config.json", "100 levels")

    @pytest.mark.parametrize("file", ["generation_config.json", "tokenizer_config.json", "tokenizer.json"])
    def test_other_deep_files(self, generate, model, file):
        if not (model / file).exists():
            (model / file).write_text("{}")
        self.nested(model / file, "unknown", 200_000)
        clean(generate(model, "--chat"), RUN_FAILED, file)

    def test_deep_adapter(self, generate, adapter):
        self.nested(adapter / "adapter_config.json", "training", 200_000)
        clean(generate(STORIES, "--adapter", adapter), RUN_FAILED, "adapter_config.json", "100 levels")

    def test_deep_text_and_prompts(self, focus, tmp_path):
        file = tmp_path / "deep.jsonl"
        file.write_text('{"text": "a", "prompt": "a", "x": ' + "[" * 300_000 + "]" * 300_000 + "}\n")
        clean(focus("eval", "--model", STORIES, "--data", file), RUN_FAILED, "deep.jsonl", "line 1", "100 levels")
        clean(focus("generate", "--model", STORIES, "--prompts", file), RUN_FAILED, "deep.jsonl", "line 1", "100 levels")

    @pytest.mark.parametrize(("text", "words"), [("", ["empty"]), ("# no", ["byte 1"]), ('{\n"a": 1,\n}', ["line 3"])])
    @pytest.mark.parametrize("file", ["config.json", "tokenizer.json"])
    def test_damaged_files(self, generate, model, file, text, words):
        (model / file).write_text(text)
        clean(generate(model), RUN_FAILED, file, *words)

    def test_model_is_a_file(self, generate):
        clean(generate(ROOT / "README.md"), RUN_FAILED, "README.md: not a folder")

    @pytest.mark.parametrize(("fields", "words"), [
        ({"groups": "many"}, ["groups", "many", "expected an integer"]),
        ({"layers_to_transform": {"a": 1}}, ["layers_to_transform", "expected a list"]),
        ({"shared": 3}, ["shared", "expected true or false"]),
        ({"module": ["x"]}, ["module", "expected a text"]),
        ({"peft_type": 7}, ["peft_type", "7"]),
        ({"tau": "x" * 10_000}, ["tau", "..."]),
    ])
    def test_adapter_of_wrong_types(self, generate, adapter, fields, words):
        (adapter / "adapter_config.json").write_text(json.dumps(adapter_config(**fields)))
        result = generate(STORIES, "--adapter", adapter, "--force")
        clean(result, RUN_FAILED, "adapter_config.json", *words)
        assert len(result.stderr) < 2000

    def test_damaged_adapter(self, generate, adapter):
        (adapter / "adapter_config.json").write_text(json.dumps(adapter_config())[:-20])
        clean(generate(STORIES, "--adapter", adapter), RUN_FAILED, "adapter_config.json", "not valid JSON at byte")

    def test_router_errors_name_the_file(self, generate, adapter):
        prefix = "base_model.model.model.layers.0.self_attn.focus."
        shapes = {"query_projection": (4, 4, 64), "key_projection": (4, 4, 64), "key_bias": (4, 64), "codebook": (4, 8, 5),
                  "potentials": (4, 8), "probe_exponent": (4,)}
        save_file({prefix + name: np.zeros(shape, np.float32) for name, shape in shapes.items()}, adapter / "adapter_model.safetensors")
        clean(generate(STORIES, "--adapter", adapter, "--force"), RUN_FAILED, "adapter_model.safetensors", "probe_exponent holds 0")

    def test_chat_template_of_wrong_types(self, generate, model):
        (model / "chat_template.jinja").unlink(missing_ok=True)
        (model / "tokenizer_config.json").write_text('{"chat_template": [{"name": 3, "template": "x"}]}')
        clean(generate(model, "--chat"), RUN_FAILED, "tokenizer_config.json", "chat_template")
        (model / "tokenizer_config.json").write_text(json.dumps({"chat_template": "{{ 1 +"}))
        clean(generate(model, "--chat"), RUN_FAILED, "tokenizer_config.json: chat_template: line 1")


class TestPaths:
    LONG = "x" * 300

    @pytest.mark.parametrize("flag", ["--model", "--data", "--adapter", "--out"])
    def test_long_name(self, focus, flag):
        flags = {"--model": STORIES, "--data": ROOT / "data/tinystories/sample.txt.gz"} | {flag: "/tmp/" + self.LONG}
        result = focus("eval", *[part for pair in flags.items() for part in pair])
        clean(result, RUN_FAILED, self.LONG, "File name too long")

    def test_long_html(self, focus, adapter, tmp_path):
        result = focus("inspect", "--model", STORIES, "--adapter", adapter, "--data", STORIES, "--html", tmp_path / (self.LONG + ".html"))
        clean(result, RUN_FAILED, self.LONG)

    @pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
    def test_unreadable_folder(self, model, tmp_path):
        locked = tmp_path / "locked"
        locked.mkdir()
        model.rename(locked / "model")
        locked.chmod(0o700)
        for folder in (tmp_path, *list(tmp_path.parents)[:-2]):
            folder.chmod(folder.stat().st_mode | 0o055)
        command = [focus_binary(), "generate", "--model", locked / "model", *map(str, GREEDY)]
        try:
            result = subprocess.run(command, capture_output=True, text=True, user="nobody", cwd="/")
        except PermissionError:
            pytest.skip("the build is not readable for others")
        if result.returncode == 127:
            pytest.skip("LibTorch is not readable for others")
        clean(result, RUN_FAILED, locked / "model", "Permission denied")

    def test_no_such_model(self, generate, tmp_path):
        clean(generate(tmp_path / "nope"), RUN_FAILED, "nope: no such model folder")

    @pytest.mark.parametrize("file", ["model.safetensors", "config.json", "tokenizer.json"])
    def test_fifo(self, generate, model, file):
        (model / file).unlink()
        os.mkfifo(model / file)
        clean(generate(model, timeout=60), RUN_FAILED, file, "not a regular file")

    def test_gzip_in_name_only(self, focus, model, tmp_path):
        (tmp_path / "plain.txt.gz").write_text("Once upon a time. " * 100)
        clean(focus("eval", "--model", STORIES, "--data", tmp_path / "plain.txt.gz"), RUN_FAILED, "plain.txt.gz", "not gzip")
        (model / "tokenizer.json").rename(model / "tokenizer.json.gz")
        clean(focus("generate", "--model", model, *GREEDY), RUN_FAILED, "tokenizer.json.gz", "not gzip")

    def test_folder_as_config(self, generate, tmp_path):
        clean(generate(STORIES, "--config", tmp_path), RUN_FAILED, tmp_path, "folder")


class TestNumbers:
    @pytest.mark.parametrize("more", [[], ["--max-context", 20]])
    def test_huge_numbers_of_tokens(self, focus, more):
        result = focus("generate", "--model", STORIES, "--prompt", "Once", "--quiet", "-n", 2**63 - 1, *more)
        if more:
            assert result.returncode == 0 and result.stdout.startswith("Once"), result.stderr
        else:
            clean(result, RUN_FAILED, 2**63 - 1, "--max-new-tokens", 512)

    def spoil(self, model, name):
        weights = load_file(model / "model.safetensors")
        weights[name].fill(np.nan)
        save_file(weights, model / "model.safetensors")

    def test_training_on_nan(self, focus, model, tmp_path):
        self.spoil(model, "model.layers.1.self_attn.q_proj.weight")
        result = focus("train", "--train", "centroids", "--model", model, "--data", ROOT / "data/tinystories/sample.txt.gz", "--out",
                       tmp_path / "run", "--context", 128, "--window", 16, "--max-steps", 2, "--quiet")
        clean(result, RUN_FAILED, "layer 1", "not finite")

    def test_generating_on_nan(self, generate, model):
        self.spoil(model, "model.norm.weight")
        clean(generate(model), RUN_FAILED, model, "NaN logits")

    def test_most_groups(self, focus):
        result = focus("eval", "--model", STORIES, "--data", STORIES, "--method", "random-groups", "--groups", 4096)
        clean(result, USAGE, "--groups 4096", "4095")


@pytest.mark.parametrize(("command", "flags", "words"), [
    ("eval", ["--method", "full", "--window", 8], ["--window", "--method full"]),
    ("eval", ["--method", "full", "--sinkhorn-iters", 3], ["--sinkhorn-iters", "--method full"]),
    ("eval", ["--method", "performer", "--adapter", STORIES], ["--adapter", "--method performer"]),
    ("eval", ["--force"], ["--force", "--adapter"]),
    ("eval", ["--method", "window", "--groups", 8], ["--groups", "--method window"]),
    ("eval", ["--method", "random-groups", "--tau", 1], ["--tau", "--method random-groups"]),
    ("generate", ["--groups", 8], ["--groups", "--method full"]),
    ("generate", ["--top-k", 5], ["--top-k", "--temperature 0"]),
    ("generate", ["--temperature", 0, "--min-p", 0.1], ["--min-p", "--temperature 0"]),
])
def test_flags_without_an_effect_are_refused(focus, command, flags, words):
    needed = {"eval": ["--data", STORIES], "generate": ["--prompt", "x"]}[command]
    clean(focus(command, "--model", STORIES, *needed, *flags), USAGE, *words)


def test_help_tells_the_default_method_and_is_a_command(focus):
    for command in ("eval", "generate"):
        text = " ".join(focus(command, "--help").stdout.split())
        assert "(default focus with --adapter, else full)" in text
    assert focus("help", "train").stdout == focus("train", "--help").stdout != ""
    assert focus("help").stdout == focus("--help").stdout != ""


class TestConvert:
    @pytest.fixture()
    def pickled(self, tmp_path):
        folder = tmp_path / "pickled"
        folder.mkdir()
        shutil.copy(STORIES / "config.json", folder)
        weights = {name: torch.from_numpy(value) for name, value in load_file(STORIES / "model.safetensors").items()}
        torch.save(weights, folder / "pytorch_model.bin")
        return folder

    def test_json_quiet_and_code(self, focus, pickled, tmp_path):
        result = focus("convert", pickled, tmp_path / "out", "--json", "--quiet")
        assert result.returncode == 0, result.stderr
        summary = json.loads(result.stdout)
        assert summary["out"] == str(tmp_path / "out") and summary["shards"] == 1 and summary["bytes"] > 1e6
        assert summary["tensors"] == len(load_file(tmp_path / "out/model.safetensors"))
        # What torch says of such a file tells how to run the code in it.
        (pickled / "pytorch_model.bin").write_bytes(b"cos\nsystem\n(S'true'\ntR.")
        clean(focus("convert", pickled, tmp_path / "other", "--quiet"), RUN_FAILED, "pytorch_model.bin", "refused")

    def test_what_needs_no_python_is_told_at_once(self, focus, pickled, tmp_path):
        (tmp_path / "there").mkdir()
        absent = dict(os.environ, FOCUS_PYTHON="/nonexistent/python")

        def run(*arguments):
            return focus("convert", *arguments, env=absent)

        clean(run(tmp_path / "none.gguf", tmp_path / "out"), RUN_FAILED, "none.gguf", "no such file")
        clean(run(pickled, tmp_path / "there"), RUN_FAILED, "exists already")
        clean(run(tmp_path / "there", tmp_path / "out"), RUN_FAILED, "config.json")
        (pickled / "config.json").write_text("{{{")
        clean(run(pickled, tmp_path / "out"), RUN_FAILED, "config.json", "not valid JSON at byte 2")
        (pickled / "pytorch_model.bin").unlink()
        (pickled / "config.json").write_text("{}")
        clean(run(pickled, tmp_path / "out"), RUN_FAILED, "no pytorch_model.bin")

    @pytest.mark.parametrize("seconds", [0.3, 1.5])
    def test_interrupt(self, pickled, tmp_path, seconds):
        process = subprocess.Popen([focus_binary(), "convert", pickled, tmp_path / "out"], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                   text=True)
        time.sleep(seconds)
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=120)
        assert "Traceback" not in err and "KeyboardInterrupt" not in err, err
        assert process.returncode in (1, -signal.SIGINT, 0), err
        left = [entry.name for entry in tmp_path.iterdir() if entry.name.startswith("out")]
        assert left == (["out"] if process.returncode == 0 else [])


def test_hidden_files_are_no_data(focus, tmp_path):
    (tmp_path / "a.txt").write_text("Once upon a time there was a little dog. " * 30)
    whole = ["eval", "--model", STORIES, "--context", 64, "--max-windows", 2, "--json", "--data"]
    before = focus(*whole, tmp_path)
    (tmp_path / ".b.txt.gz").write_bytes(gzip.compress(b"Something else. " * 30))
    assert before.returncode == 0, before.stderr
    assert json.loads(focus(*whole, tmp_path).stdout)["nll"] == json.loads(before.stdout)["nll"]

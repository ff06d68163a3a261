"""focus reproduce: a table of scale quick against a frozen one, nothing done twice, interrupts, failures, bad input, the page."""

import fcntl
import json
import os
import re
import signal
import subprocess
import time

import pytest
from browser import Browser, find_browser
from conftest import ROOT, STORIES, focus_binary
from test_cli import RUN_FAILED, USAGE, refused

# Table 10 of scale quick, on fewer windows and fewer steps of training.
SMALLER = ["--set", "windows=8", "--set", "router-steps=8", "--set", "list-windows=2", "--threads", 1]
FROZEN = json.loads((ROOT / "tests/data/reproduce_t10.json").read_text())
RECIPE = """title = "T"
source = "table 0"
[runs]
full = "eval {load} {text} --method full --max-windows {n}"
broken = "eval {load} {text} --context 100000"
[[columns]]
key = "ppl"
title = "PPL"
value = "perplexity"
noise = "window_nll"
log = true
[[rows]]
id = "full"
title = "full"
run = "full"
set = { n = 3 }
"""


def finished(out):
    """Time of every finished run by its key."""
    runs = {file.parent.name: (file.stat().st_mtime_ns, json.loads(file.read_text())["finished"]) for file in out.glob("runs/*/run.json")}
    return {key: when for key, (when, done) in runs.items() if done}


@pytest.fixture(scope="module")
def table(focus, tmp_path_factory):
    """(folder, standard output, results) of table 10, interrupted once and then finished."""
    out = tmp_path_factory.mktemp("t10")
    command = list(map(str, [focus_binary(), "reproduce", "t10", "--out", out, *SMALLER]))
    process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    deadline = time.monotonic() + 300
    while not finished(out) and time.monotonic() < deadline:
        time.sleep(0.05)
    process.send_signal(signal.SIGINT)
    text, log = process.communicate(timeout=120)
    assert process.returncode == RUN_FAILED and "interrupted" in log, log
    before = finished(out)
    assert before and "not run yet" in text
    result = focus("reproduce", "t10", "--out", out, *SMALLER)
    assert result.returncode == 0, result.stderr
    assert before.items() <= finished(out).items()  # What had finished was not done again.
    return out, result.stdout, json.loads((out / "results.json").read_text())


def test_figures_are_the_frozen_ones(table):
    (found,) = table[2]["tables"]
    assert [row["id"] for row in found["rows"]] == list(FROZEN)
    for row in found["rows"]:
        expected, ours = FROZEN[row["id"]], row["ours"]
        assert ours["ppl"]["value"] == pytest.approx(expected["ppl"], rel=expected["rel"]), row["id"]
        assert ours["pairs"]["value"] == pytest.approx(expected["pairs"], rel=0.05), row["id"]
        assert ours["ppl"]["samples"] == 8 and 0 < ours["ppl"]["stderr"] < 1
        assert not row["leaks"] and row["missing"] == ""
    ppl = {row["id"]: row["ours"]["ppl"]["value"] for row in found["rows"]}
    ranked = {row["id"] for row in found["rows"] if not row["unranked"]}
    assert ranked == {"full", "focus", "magicpig", "window"}
    assert found["columns"][0]["best"] == min(ranked, key=ppl.get)


def test_claims_follow_from_the_windows(table):
    out, _, results = table
    (found,) = results["tables"]
    run = {row["id"]: row["runs"][0] for row in found["rows"]}

    def samples(row):
        """Of the windows, so that their mean is the mean over tokens."""
        result = json.loads((out / "runs" / run[row] / "stdout.jsonl").read_text().splitlines()[-1])
        share = [n * len(result["window_tokens"]) / result["tokens_scored"] for n in result["window_tokens"]]
        return [result["nll"] + w * (nll - result["nll"]) for w, nll in zip(share, result["window_nll"], strict=True)]

    for claim in found["claims"]:
        verdicts = []
        for entry in claim["comparisons"]:
            left, right = (entry[side].removesuffix(".ppl") for side in ("left", "right"))
            differences = [a - b for a, b in zip(samples(left), samples(right), strict=True)]
            mean = sum(differences) / len(differences)
            error = (sum((d - mean)**2 for d in differences) / (len(differences) * (len(differences) - 1)))**0.5
            assert entry["stderr"] == pytest.approx(error, rel=1e-6)
            noise = 2 * 2.3646 / 1.95996 * error  # Student's t of 8 windows beside the normal distribution.
            assert entry["noise"] == pytest.approx(noise, rel=1e-3)
            assert entry["verdict"] == ("held" if entry["difference"] < -noise else "not held" if entry["difference"] > noise else "unclear")
            verdicts.append(entry["verdict"])
        assert claim["verdict"] == ("not held" if "not held" in verdicts else "held" if set(verdicts) == {"held"} else "unclear")


def test_nothing_is_done_twice(focus, table):
    out, text, results = table
    before = finished(out)
    again = focus("reproduce", "t10", "--out", out, *SMALLER, "--json")
    assert again.returncode == 0 and json.loads(again.stdout)["tables"] == results["tables"]
    assert finished(out) == before
    plan = json.loads(focus("reproduce", "t10", "--out", out, *SMALLER, "--dry-run", "--json").stdout)
    assert all(run["done"] for run in plan["runs"]) and plan["seconds"] == 0
    # Other windows: everything is to be scored again, nothing to be trained.
    other = json.loads(focus("reproduce", "t10", "--out", out, *SMALLER, "--set", "windows=7", "--dry-run", "--json").stdout)
    assert {run["command"].split()[1] for run in other["runs"] if run["done"]} == {"train"}
    forced = json.loads(focus("reproduce", "t10", "--out", out, *SMALLER, "--force", "--dry-run", "--json").stdout)
    assert not any(run["done"] for run in forced["runs"])
    assert "| SparQ" in text and "52.8" in text


def test_nothing_tells_where_it_was_made(table):
    out, text, _ = table
    for file in ("results.md", "results.json", "results.html"):
        content = (out / file).read_text()
        assert str(out) not in content and str(ROOT) not in content, file
    assert text in (out / "results.md").read_text()


@pytest.mark.parametrize("scale", ["quick", "small"])
def test_every_command_of_every_recipe_is_accepted(focus, tmp_path, scale):
    result = focus("reproduce", "all", "--scale", scale, "--model", STORIES, "--out", tmp_path / "out", "--dry-run", "--json")
    assert result.returncode == 0, result.stderr
    plan = json.loads(result.stdout)
    assert len(plan["runs"]) > 40 and plan["unknown"] == 0 and plan["seconds"] > 0
    assert not (tmp_path / "out").exists()


@pytest.mark.smollm2
def test_the_shipped_adapter_stands_for_its_own_training_only(focus, tmp_path):
    def trained(name, *flags):
        result = focus("reproduce", name, "--scale", "small", "--out", tmp_path, "--dry-run", "--json", *flags)
        assert result.returncode == 0, result.stderr
        return [run["command"] for run in json.loads(result.stdout)["runs"] if " --groups 64 " in run["command"]]

    assert trained("t10") == [] and trained("t10", "--set", "windows=2") == []
    for flags in (["--model", STORIES], ["--set", "router-steps=5"], ["--set", "window=64"]):
        assert len(trained("t10", *flags)) == 1, flags
    assert len(trained("longctx")) == 1  # Trained at another length than the shipped one.


def test_scale_full_asks_for_its_models(focus, tmp_path):
    out = ["--out", tmp_path, "--dry-run", "--scale", "full"]
    refused(focus("reproduce", "t7", *out), USAGE, "t7", "--set", "GPT-2")
    refused(focus("reproduce", "t7", *out, "--model", tmp_path / "absent", "--set", f"test-data={STORIES}"), RUN_FAILED, "row 'full'", "--model", "absent")
    texts = ["--set", f"train-data={ROOT / 'data/tinystories'}", "--set", f"test-data={ROOT / 'data/tinystories'}"]
    plan = focus("reproduce", "t2", *out, *texts, "--set", f"mistral={STORIES}")
    assert plan.returncode == 0 and "Mistral 7B" in plan.stdout and "LLaMA" not in plan.stdout


class TestRecipes:
    @pytest.fixture()
    def recipes(self, tmp_path):
        folder = tmp_path / "recipes"
        folder.mkdir()
        common = (ROOT / "recipes/common.toml").read_text().replace('"data/', f'"{ROOT}/data/')
        (folder / "common.toml").write_text(common)
        (folder / "one.toml").write_text(RECIPE)
        return folder

    def test_a_new_file_is_a_new_table(self, focus, recipes, tmp_path):
        result = focus("reproduce", "one", "--recipes", recipes, "--out", tmp_path / "out", "--threads", 1)
        assert result.returncode == 0, result.stderr
        assert "## one: T" in result.stdout

    def test_failures_are_told_and_the_rest_goes_on(self, focus, recipes, tmp_path):
        (recipes / "one.toml").write_text(RECIPE + '[[rows]]\nid = "broken"\ntitle = "broken"\nrun = "broken"\n')
        result = focus("reproduce", "one", "--recipes", recipes, "--out", tmp_path / "out", "--threads", 1)
        assert result.returncode == RUN_FAILED
        assert re.search(r"\| broken.*failed: --context 100000", result.stdout) and re.search(r"\| full +\| +\d", result.stdout)
        log = next((tmp_path / "out").glob("runs/*/stderr.log"))
        assert log.read_text()

    @pytest.mark.parametrize("change, code, words", [
        (('title = "T"', 'titel = "T"'), RUN_FAILED, ("one.toml", "title is missing")),
        (('run = "full"', 'run = "fill"'), RUN_FAILED, ("one.toml", "no run 'fill'")),
        (("--max-windows", "--max-window"), USAGE, ("one: full", "--max-window", "--max-windows")),
        (("{n}", "{m}"), RUN_FAILED, ("row 'full'", "{m}")),
        (("eval {load} {text} --method full", "reproduce one"), USAGE, ("reproduce",)),
    ])
    def test_a_bad_recipe_is_one_line(self, focus, recipes, tmp_path, change, code, words):
        (recipes / "one.toml").write_text(RECIPE.replace(*change))
        refused(focus("reproduce", "one", "--recipes", recipes, "--out", tmp_path / "out"), code, *words)
        assert not (tmp_path / "out").exists()

    def test_unknown_names(self, focus, recipes, tmp_path):
        refused(focus("reproduce", "t99", "--recipes", recipes), USAGE, "t99", "one, all")
        refused(focus("reproduce", "one", "--recipes", recipes, "--set", "windows"), USAGE, "--set windows", "NAME=VALUE")
        refused(focus("reproduce", "one", "--recipes", tmp_path / "absent"), RUN_FAILED, "absent")

    def test_two_do_not_write_in_one_folder(self, focus, recipes, tmp_path):
        out = tmp_path / "out"
        out.mkdir()
        handle = os.open(out, os.O_RDONLY)
        fcntl.flock(handle, fcntl.LOCK_EX)
        refused(focus("reproduce", "one", "--recipes", recipes, "--out", out), RUN_FAILED, "--out", "another run is writing there")
        assert list(out.iterdir()) == []
        assert focus("reproduce", "one", "--recipes", recipes, "--out", out, "--dry-run").returncode == 0
        os.close(handle)

    def test_what_nothing_depends_on_is_refused(self, focus, recipes, tmp_path):
        out = ["--out", tmp_path / "out", "--dry-run"]
        refused(focus("reproduce", "one", "--recipes", recipes, *out, "--set", "window=9"), USAGE, "--set window=9", "no row", "one")
        refused(focus("reproduce", "one", "--recipes", recipes, *out, "--set", "n=9"), USAGE, "--set n=9")  # The row has its own.
        refused(focus("reproduce", "t6", *out, "--model", STORIES), USAGE, "--model", "t6")
        assert focus("reproduce", "one", "--recipes", recipes, *out, "--set", "context=9").returncode == 0


@pytest.fixture(scope="module")
def page(table):
    binary = find_browser()
    if binary is None:
        pytest.skip("no Chromium is installed (apt-get install chromium)")
    with Browser(binary) as browser:
        browser.resize(375, 812, phone=True)
        browser.colours("dark")
        browser.open(table[0] / "results.html")
        yield browser


class TestPage:
    def test_nothing_breaks_or_is_loaded(self, page, table):
        assert page.errors == []
        assert {address.partition("#")[0] for address in page.requests} == {(table[0] / "results.html").resolve().as_uri()}
        text = page.run("document.querySelector('main').innerText")
        assert "undefined" not in text and "[object" not in text and "NaN" not in text
        assert "SparQ" in text and "52.80" in text

    def test_fits_a_phone_in_both_colours(self, page):
        assert page.run("document.documentElement.scrollWidth") == 375
        background = "getComputedStyle(document.body).backgroundColor"
        dark = page.run(background)
        page.run("document.getElementById('theme').click()")
        assert page.run(background) != dark

    def test_plot_by_keyboard(self, page):
        page.run("document.querySelector('figure svg').focus()")
        page.press("ArrowRight")
        assert "pairs kept" in page.run("document.querySelector('.readout').textContent")
        assert page.run("document.querySelectorAll('figure svg circle').length") >= 7

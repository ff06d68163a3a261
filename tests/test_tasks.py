"""`focus eval --tasks` against EleutherAI's lm-evaluation-harness: the same items and model, full attention.

The harness's scores were computed by tests/lm_eval_oracle.py and are kept in tests/data: choices must be the same, log-likelihoods
equal to 1e-4 (of whole pages, relative to their size, to 1e-6).
"""

import gzip
import json
import signal
import statistics
import subprocess
import time

import pytest
from conftest import ROOT, STORIES, focus_binary

DATA = ROOT / "data/benchmarks"
BOOK = ROOT / "data/books/test/jennie-gerhardt.jsonl.gz"
CHOICE_TASKS = ["hellaswag", "arc-easy", "piqa", "truthfulqa-mc1"]


def expected(model: str) -> dict:
    return json.loads((ROOT / f"tests/data/lm_eval_{model}.json").read_text())["tasks"]


def run(focus, out, tasks, *extra, model=STORIES):
    """(summaries by task, items by task)"""
    result = focus("eval", "--model", model, "--dtype", "float32", "--threads", 1, "--method", "full", "--tasks", ",".join(tasks),
                   "--tasks-data", DATA, "--json", "--out", out, *extra)
    assert result.returncode == 0, result.stderr
    scores = json.loads(result.stdout)["tasks"]
    items = {task: [json.loads(line) for line in (out / f"items-{task}.jsonl").read_text().splitlines()] for task in tasks}
    return scores, items


def standard_error(values):
    return statistics.stdev(values) / len(values) ** 0.5


def same_likelihoods(ours, theirs, tolerance=1e-4):
    assert len(ours) == len(theirs)
    for mine, other in zip(ours, theirs, strict=True):
        values = mine.get("log_likelihoods") or [mine["log_likelihood"]]
        assert values == pytest.approx(other["log_likelihoods"], abs=tolerance)


def check_choices(task, scores, items, theirs):
    same_likelihoods(items, theirs["items"])
    for name, error in (("acc", "stderr"), ("acc_norm", "acc_norm_stderr")):
        if f"{name},none" not in theirs["scores"]:
            assert name not in scores, task
            continue
        assert [item[name] for item in items] == [item[name] for item in theirs["items"]], task
        assert scores[name] == pytest.approx(theirs["scores"][f"{name},none"], abs=1e-12)
        assert scores[error] == pytest.approx(standard_error([item[name] for item in items]), abs=1e-12)


def check_all_choices(focus, out, model, folder):
    theirs = expected(model)
    scores, items = run(focus, out, [*CHOICE_TASKS, "blimp"], model=folder)
    for task in CHOICE_TASKS:
        assert scores[task]["n"] == 20
        check_choices(task, scores[task], items[task], theirs[task])
    paradigms = sorted(name for name in theirs if name.startswith("blimp/"))
    assert len(paradigms) == 8
    for name in paradigms:
        group = name.removeprefix("blimp/")
        own = [item for item in items["blimp"] if item["group"] == group]
        check_choices(name, scores["blimp"]["groups"][group], own, theirs[name])
    means = [theirs[name]["scores"]["acc,none"] for name in paradigms]
    assert scores["blimp"]["acc"] == pytest.approx(statistics.mean(means), abs=1e-12)


def check_lambada(focus, out, model, folder):
    theirs = expected(model)["lambada"]
    scores, items = run(focus, out, ["lambada"], model=folder)
    same_likelihoods(items["lambada"], theirs["items"])
    assert [item["acc"] for item in items["lambada"]] == [item["acc"] for item in theirs["items"]]
    assert scores["lambada"]["acc"] == pytest.approx(theirs["scores"]["acc,none"], abs=1e-12)
    assert scores["lambada"]["perplexity"] == pytest.approx(theirs["scores"]["perplexity,none"], rel=1e-4)


def test_choices(focus, tmp_path):
    check_all_choices(focus, tmp_path, "stories260K", STORIES)


def test_last_words(focus, tmp_path):
    check_lambada(focus, tmp_path, "stories260K", STORIES)


def test_running_text(focus, tmp_path):
    theirs = expected("stories260K")["wikitext2"]
    scores, items = run(focus, tmp_path, ["wikitext2"])
    assert len(items["wikitext2"]) == 3
    for mine, other in zip(items["wikitext2"], theirs["items"], strict=True):
        assert mine["log_likelihood"] == pytest.approx(other["log_likelihoods"][0], rel=1e-6)
    for name in ("word_perplexity", "byte_perplexity", "bits_per_byte"):
        assert scores["wikitext2"][name] == pytest.approx(theirs["scores"][f"{name},none"], rel=1e-4)


def test_generated_answers(focus, tmp_path):
    theirs = expected("stories260K")["gsm8k"]
    scores, items = run(focus, tmp_path, ["gsm8k"])
    assert scores["gsm8k"]["truncated"] == len(items["gsm8k"]) == 20  # 8 examples do not fit 512 - 256 tokens
    for mine, other in zip(items["gsm8k"], theirs["items"], strict=True):
        assert mine["text"] == other["text"]
        assert [mine["strict_answer"], mine["acc"]] == other["answers"]["strict-match"]
        assert [mine["flexible_answer"], mine["flexible"]] == other["answers"]["flexible-extract"]


def scores_of(focus, tasks, *extra):
    result = focus("eval", "--model", STORIES, "--threads", 1, "--tasks", tasks, "--json", *extra)
    assert result.returncode == 0, result.stderr
    return json.loads(result.stdout)


def test_a_prefix_and_examples_make_prompts_long(focus):
    data = ("--tasks-data", DATA, "--limit", 5)
    plain = scores_of(focus, "arc-easy", *data)["tasks"]["arc-easy"]
    prefixed = scores_of(focus, "arc-easy", *data, "--prefix", BOOK, "--prefix-tokens", 200)["tasks"]["arc-easy"]
    shots = scores_of(focus, "arc-easy", *data, "--shots", 2)["tasks"]["arc-easy"]
    assert plain["n"] == prefixed["n"] == shots["n"] == 5
    assert 180 < prefixed["tokens_mean"] - plain["tokens_mean"] < 220
    assert shots["tokens_mean"] > 2 * plain["tokens_mean"]
    assert (prefixed["prefix_tokens"], shots["shots"]) == (200, 2)
    assert len({round(s["gold_log_likelihood"], 6) for s in (plain, prefixed, shots)}) == 3


def test_long_items_lose_their_left_part(focus):
    scores = scores_of(focus, "lambada,needle", "--tasks-data", DATA, "--task-context", 64, "--prefix", BOOK, "--needle-length", 200,
                       "--limit", 3)["tasks"]
    assert scores["lambada"]["truncated"] == 3 and scores["lambada"]["tokens_max"] == 65  # the last token is only predicted
    assert scores["needle"]["truncated"] == 0 and scores["needle"]["tokens_max"] > 150


def test_every_method_runs_and_counts_its_pairs(focus):
    full = scores_of(focus, "hellaswag", "--tasks-data", DATA, "--limit", 4, "--method", "full")["tasks"]["hellaswag"]
    window = scores_of(focus, "hellaswag", "--tasks-data", DATA, "--limit", 4, "--method", "window", "--window", 8)["tasks"]["hellaswag"]
    assert full["pairs_kept"] == 1 and 0 < window["pairs_kept"] < 0.5
    assert abs(full["gold_log_likelihood"] - window["gold_log_likelihood"]) > 1e-3


@pytest.mark.parametrize(("method", "flags"), [
    ("full", []), ("window", ["--window", 16]), ("random-groups", ["--window", 16, "--groups", 8, "--groups-per-token", 2]),
])
def test_a_shared_prompt_changes_nothing(focus, tmp_path, method, flags):
    """Choices share the pass over a long prompt; single continuations of the same texts do not."""
    question = "Lily went to the park with her mom and saw a big red ball. " * 8
    choices = ["ball", "sun", "elephant"]
    for task, name, lines in (
        ("arc_easy", "test.jsonl", [{"question": question, "choices": choices, "gold": 0}]),
        ("lambada", "test.jsonl", [{"text": f"Question: {question}\nAnswer: {choice}"} for choice in choices]),
    ):
        (tmp_path / task).mkdir()
        (tmp_path / task / name).write_text("\n".join(map(json.dumps, lines)))
    scores_of(focus, "arc-easy,lambada", "--tasks-data", tmp_path, "--method", method, *flags, "--out", tmp_path)
    shared = json.loads((tmp_path / "items-arc-easy.jsonl").read_text())
    single = [json.loads(line) for line in (tmp_path / "items-lambada.jsonl").read_text().splitlines()]
    assert shared["tokens"] > 160
    assert shared["log_likelihoods"] == pytest.approx([item["log_likelihood"] for item in single], abs=1e-4)


def test_retrieval_is_repeatable_and_has_the_length_asked_for(focus, tmp_path):
    arguments = ("--prefix", BOOK, "--needle-length", 400, "--limit", 6, "--needle-keys", 3)
    first = scores_of(focus, "needle,multi-key", *arguments, "--out", tmp_path)["tasks"]
    again = scores_of(focus, "needle,multi-key", *arguments)["tasks"]
    other = scores_of(focus, "needle,multi-key", *arguments, "--seed", 1)["tasks"]
    assert first == again and first != other
    for task in ("needle", "multi-key"):
        items = [json.loads(line) for line in (tmp_path / f"items-{task}.jsonl").read_text().splitlines()]
        assert [400 - 31 <= item["tokens"] <= 400 for item in items] == [True] * 6
        assert [item["depth"] for item in items] == pytest.approx([1 / 12, 3 / 12, 5 / 12, 7 / 12, 9 / 12, 11 / 12], abs=0.06)
        assert sum(part["n"] for part in first[task]["by_depth"]) == 6


def test_perplexity_by_position(focus):
    result = focus("eval", "--model", STORIES, "--data", ROOT / "data/tinystories/sample.txt.gz", "--context", 300, "--max-windows", 3,
                   "--json")
    scores = json.loads(result.stdout)
    parts = scores["by_position"]
    assert [(part["begin"], part["end"]) for part in parts] == [(0, 128), (128, 256), (256, 512)]
    assert sum(part["tokens"] for part in parts) == scores["tokens_scored"]
    total = sum(part["tokens"] * part["nll"] for part in parts)
    assert total / scores["tokens_scored"] == pytest.approx(scores["nll"], abs=1e-6)


@pytest.mark.parametrize("arguments, code, words", [
    (["--tasks", "lambada"], 2, "--tasks lambada needs --tasks-data"),
    (["--tasks", "lambda", "--tasks-data", DATA], 2, "lambada"),
    (["--tasks", "copy"], 2, "--tasks copy needs --data"),
    (["--tasks", "needle"], 2, "need --prefix"),
    (["--tasks", "needle", "--prefix", BOOK, "--needle-length", "600"], 2, "the model's context is 512"),
    (["--tasks", "needle", "--prefix", BOOK, "--needle-length", "64"], 2, "the sentences and the question alone have"),
    (["--tasks", "lambada", "--tasks-data", DATA, "--prefix-tokens", "100"], 2, "--prefix-tokens needs --prefix"),
    (["--tasks", "wikitext2", "--tasks-data", DATA, "--shots", "1"], 2, "it takes no --shots"),
    (["--tasks", "gsm8k", "--tasks-data", DATA, "--shots", "9"], 2, "gsm8k has only 8"),
    (["--tasks", "piqa", "--tasks-data", DATA, "--context", "100"], 2, "--context belongs to --data"),
    (["--tasks", "piqa", "--tasks-data", "/nowhere"], 1, "expected a file valid.jsonl (or .gz)"),
    ([], 2, "--data, --tasks or both"),
])
def test_wrong_requests_are_refused_in_one_line(focus, arguments, code, words):
    result = focus("eval", "--model", STORIES, "--quiet", *arguments)
    assert (result.returncode, result.stdout) == (code, "")
    assert words in result.stderr
    assert len(result.stderr.strip().splitlines()) == 1


def test_interrupt_ends_without_a_result(tmp_path):
    (tmp_path / "lambada").mkdir()
    text = gzip.decompress((DATA / "lambada/lambada_test.jsonl.gz").read_bytes()).decode()
    (tmp_path / "lambada/test.jsonl").write_text(text * 3000)
    command = [focus_binary(), "eval", "--model", STORIES, "--tasks", "lambada", "--tasks-data", tmp_path, "--json"]
    process = subprocess.Popen([str(part) for part in command], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    while "loaded in" not in (line := process.stderr.readline()):
        assert line, "ended before the model was loaded"
    time.sleep(3)
    process.send_signal(signal.SIGINT)
    out, error = process.communicate(timeout=120)
    assert (process.returncode, out) == (1, "")
    assert "interrupted: no result" in error

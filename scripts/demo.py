"""The demonstration behind ./demo: retrofit, measure, generate, in four stages that are skipped when done before.

A stage is done when demo-out/MODE/STAGE.json holds its result under a key made from the program, its library, the model, the texts
and the arguments; whatever of these changes, the stage runs again.
"""

import argparse
import gzip
import hashlib
import json
import shutil
import os
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
BUILD = ROOT / os.environ.get("FOCUS_BUILD", "build/release")
OUT = ROOT / "demo-out"


@dataclass(frozen=True)
class Settings:
    mode: str
    model: str
    dtype: str  # in which the weights are used; an adapter's fingerprint of its base depends on it
    train_data: str
    test_data: str
    train: tuple[str, ...]
    groups: tuple[str, ...]  # the same for random groups and for Focus
    trained_probes: str
    probes: str  # lists a token probes in evaluation and generation, for random groups and Focus alike
    near: tuple[str, ...]  # the same for all sparse methods
    evaluate: tuple[str, ...]
    prompt: str
    generate: tuple[str, ...] = field(default=("--max-new-tokens", "60", "--temperature", "0"))


FULL = Settings(
    mode="full",
    model=".cache/models/smollm2-135m-instruct",
    dtype="float32",
    train_data="data/books/train",
    test_data="data/books/test/jennie-gerhardt.jsonl.gz",
    train=("--context", "2048", "--adapter-dtype", "bfloat16"),
    groups=("--groups", "64"),
    trained_probes="9",
    probes="8",
    near=("--window", "128", "--sinks", "4"),
    evaluate=("--context", "2048", "--stride", "2048", "--max-windows", "8", "--tasks", "copy"),
    prompt="It was late in the afternoon when the carriage came to the old house, and Jennie",
)
QUICK = Settings(
    mode="quick",
    model="data/models/stories260K",
    dtype="float32",
    train_data="demo-out/quick/train.txt",  # both written by split_stories
    test_data="demo-out/quick/test.txt",
    train=("--context", "512", "--list-windows", "8"),
    groups=("--groups", "64"),
    trained_probes="8",
    probes="8",
    near=("--window", "32", "--sinks", "4"),
    evaluate=("--context", "512", "--stride", "512", "--max-windows", "16", "--tasks", "copy", "--copy-passage", "64",
              "--copy-filler", "200"),
    prompt="Once upon a time, there was a little girl named Lily. She",
)


def file_hash(paths: list[Path]) -> str:
    digest = hashlib.sha256()
    for path in paths:
        digest.update(str(path).encode())
        with path.open("rb") as file:
            digest.update(hashlib.file_digest(file, "sha256").digest())
    return digest.hexdigest()


def files_below(path: Path) -> list[Path]:
    return sorted(p for p in path.rglob("*") if p.is_file()) if path.is_dir() else [path]


def split_stories() -> None:
    """Three quarters of the sample of TinyStories are for training, the rest, from a story's start on, for evaluation."""
    text = gzip.decompress((ROOT / "data/tinystories/sample.txt.gz").read_bytes()).decode()
    cut = text.index("\n\nOnce upon a time", len(text) * 3 // 4) + 2
    (OUT / "quick").mkdir(parents=True, exist_ok=True)
    for name, part in (("train", text[:cut]), ("test", text[cut:])):
        (OUT / "quick" / f"{name}.txt").write_text(part, encoding="utf-8")


def run_focus(*arguments: str) -> tuple[dict, float]:
    """The last JSON object that `focus ARGUMENTS --json` prints, and its wall time in seconds. Progress goes to stderr."""
    print("$ focus", " ".join(arguments), flush=True)
    began = time.monotonic()
    result = subprocess.run([str(BUILD / "bin/focus"), *arguments, "--json"], cwd=ROOT, stdout=subprocess.PIPE, text=True)
    if result.returncode != 0:
        sys.exit(f"focus {arguments[0]} failed with exit code {result.returncode}")
    return json.loads(result.stdout.splitlines()[-1]), time.monotonic() - began


class Demo:
    def __init__(self, settings: Settings):
        self.settings = settings
        self.folder = OUT / settings.mode
        self.folder.mkdir(parents=True, exist_ok=True)
        inputs = [ROOT / settings.model, ROOT / settings.train_data, ROOT / settings.test_data, BUILD / "bin/focus"]
        inputs += sorted(BUILD.glob("lib/libfocus.so"))
        self.key = file_hash([file for path in inputs for file in files_below(path)])

    @property
    def adapter(self) -> Path:
        return self.folder / "train" / "adapter"

    def stage(self, name: str, arguments: list[str], depends: str = "") -> dict:
        """Runs one command or takes its result from an earlier run. Returns {"key", "result", "seconds"}."""
        file = self.folder / f"{name}.json"
        key = hashlib.sha256(json.dumps([self.key, arguments, depends]).encode()).hexdigest()
        if file.exists():
            done = json.loads(file.read_text())
            if done["key"] == key:
                print(f"{name}: done before in {done['seconds']:.0f} s with the same program, data and settings ({file})")
                return done
        if arguments[0] == "train":  # What an interrupted run has left.
            shutil.rmtree(ROOT / arguments[arguments.index("--out") + 1], ignore_errors=True)
        result, seconds = run_focus(*arguments)
        done = {"key": key, "seconds": round(seconds, 2), "result": result}
        file.write_text(json.dumps(done, indent=1) + "\n")
        print(f"{name}: {seconds:.0f} s", flush=True)
        return done

    def run(self) -> dict:
        s = self.settings
        out = str((self.folder / "train").relative_to(ROOT))
        adapter = str(self.adapter.relative_to(ROOT))
        model = ["--model", s.model, "--dtype", s.dtype]
        probes = ["--groups-per-token", s.probes]
        trained = self.stage("train-log", ["train", "--train", "centroids", *model, "--data", s.train_data, "--out", out, *s.train,
                                           *s.groups, "--groups-per-token", s.trained_probes, *s.near])

        def evaluate(name: str, *arguments: str) -> dict:
            common = ["eval", *model, "--data", s.test_data, *s.evaluate]
            return self.stage(name, [*common, *arguments], trained["key"] if "--adapter" in arguments else "")["result"]

        results = {
            "full": evaluate("full", "--method", "full"),
            "window": evaluate("window", "--method", "window", *s.near),
            "random groups": evaluate("random-groups", "--method", "random-groups", *s.groups, *probes, *s.near),
            "focus": evaluate("focus", "--method", "focus", "--adapter", adapter, *probes),
        }
        generated = self.stage("generate", ["generate", *model, "--adapter", adapter, *probes, "--prompt", s.prompt, *s.generate],
                               trained["key"])["result"]
        self.print_table(results)
        focus = results["focus"]
        return {
            "model": s.model,
            "steps": trained["result"]["steps"],
            "seconds": trained["seconds"],
            "ppl_full": results["full"]["perplexity"],
            "ppl_window": results["window"]["perplexity"],
            "ppl_random_groups": results["random groups"]["perplexity"],
            "ppl_focus": focus["perplexity"],
            "copy_nll_full": results["full"]["copy_nll"],
            "copy_nll_focus": focus["copy_nll"],
            "pairs_kept": focus["pairs_kept"],
            "pairs_kept_copy": focus["pairs_kept_copy"],
            "dominance_max": max(focus["dominance"]),
            "leak_max_abs_diff": focus["leak_max_abs_diff"],
            "adapter_bytes": (self.adapter / "adapter_model.safetensors").stat().st_size,
            "sample": generated["text"],
        }

    def print_table(self, results: dict[str, dict]) -> None:
        full = results["full"]
        print(f"\n{self.settings.model} on {self.settings.test_data}: context {full['context']}, stride {full['stride']}, "
              f"{full['tokens_scored']} tokens scored")
        print(f"{'attention':<15}{'perplexity':>11}{'to full':>9}{'pairs':>8}{'copy NLL':>10}{'pairs (copy)':>14}")
        for name, row in results.items():
            gap = row["perplexity"] / full["perplexity"] - 1
            print(f"{name:<15}{row['perplexity']:>11.3f}{gap:>+9.1%}{row['pairs_kept']:>8.1%}{row['copy_nll']:>10.3f}"
                  f"{row['pairs_kept_copy']:>14.1%}")


def verdicts(summary: dict, mode: str) -> list[tuple[bool, str]]:
    """What the demonstration should show, each with whether it did."""
    gap = summary["ppl_focus"] / summary["ppl_full"] - 1
    copy_gap = summary["copy_nll_focus"] - summary["copy_nll_full"]
    order = summary["ppl_window"] > summary["ppl_random_groups"] > summary["ppl_focus"]
    found = [(order, "perplexity: window > random groups > focus")]
    if mode == "full":
        found += [
            (gap <= 0.02, f"perplexity at most 2% above full attention: {gap:+.2%}"),
            (summary["pairs_kept"] <= 0.28, f"at most 28% of token pairs attended: {summary['pairs_kept']:.1%}"),
            (copy_gap <= 0.25, f"copying at most 0.25 nats above full attention: {copy_gap:+.3f}"),
            (summary["seconds"] <= 360, f"training in at most 6 minutes: {summary['seconds'] / 60:.1f} minutes"),
        ]
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="the 260K-parameter model in data/ instead of SmolLM2-135M")
    settings = QUICK if parser.parse_args().quick else FULL
    if settings is QUICK:
        split_stories()
    summary = Demo(settings).run()
    print(f"\ntrained {summary['steps']} steps in {summary['seconds']:.0f} s, adapter of {summary['adapter_bytes'] / 1e6:.2f} MB, "
          f"largest list {summary['dominance_max']:.1%} of keys, leak probe {summary['leak_max_abs_diff']:.2g}")
    print(f"generated with Focus: {settings.prompt} ...\n    {summary['sample']}\n")
    for reached, text in verdicts(summary, settings.mode):
        print(f"{'reached    ' if reached else 'NOT reached'}  {text}")
    (OUT / "summary.json").write_text(json.dumps(summary, indent=2, ensure_ascii=False) + "\n")
    print(f"\nwrote {(OUT / 'summary.json').relative_to(ROOT)}; everything else is in demo-out/{settings.mode}")


if __name__ == "__main__":
    main()

"""Scores of EleutherAI's lm-evaluation-harness on data/benchmarks, which tests/test_tasks.py compares with `focus eval`.

    lm_eval_oracle.py MODEL OUT.json [task ...]

Needs `pip install lm_eval==0.4.13` (with its dependencies some 600 MB, so not in requirements.txt); the results for
stories260K are kept in tests/data/lm_eval_stories260K.json. The harness runs its own task definitions; only where the items come
from is replaced, and the pages of WikiText are cut here as the data set that the harness downloads has them.
"""

import gzip
import json
import sys
import tempfile
from pathlib import Path

import lm_eval
import yaml
from lm_eval.models.huggingface import HFLM
from lm_eval.tasks import TaskManager
from transformers import AutoModelForCausalLM, PreTrainedTokenizerFast

ROOT = Path(__file__).resolve().parent.parent
DATA = ROOT / "data/benchmarks"
HARNESS_TASKS = Path(lm_eval.__file__).parent / "tasks"


def read(name: str) -> str:
    return gzip.decompress((DATA / name).read_bytes()).decode()


def records(name: str) -> list[dict]:
    return [json.loads(line) for line in read(name).split("\n") if line.strip()]


def arc(item: dict) -> dict:
    labels = ["A", "B", "C", "D", "E"][: len(item["choices"])]
    return {"question": item["question"], "choices": {"text": item["choices"], "label": labels}, "answerKey": labels[item["gold"]]}


def truthful(item: dict) -> dict:
    targets = item["mc1_targets"]
    return {"question": item["question"], "mc1_targets": {"choices": list(targets), "labels": list(targets.values())}}


def wikitext_pages() -> list[dict]:
    pages, lines = [], []
    for line in read("wikitext2/test.txt.gz").split("\n"):
        bare = line.strip()
        if bare.startswith("= ") and bare.endswith(" =") and not bare.startswith("= ="):
            pages.append("\n".join(lines))
            lines = []
        lines.append(line)
    pages.append("\n".join(lines))
    return [{"page": page} for page in pages if page.strip()]


def task_items() -> dict:
    """name: (the harness's definition, split, items)"""
    labels = read("piqa/valid-labels.lst.gz").split()
    items = {
        "lambada": ("lambada/lambada_openai.yaml", "test", records("lambada/lambada_test.jsonl.gz")),
        "hellaswag": ("hellaswag/hellaswag.yaml", "validation", records("hellaswag/validation.jsonl.gz")),
        "arc-easy": ("arc/arc_easy.yaml", "test", [arc(item) for item in records("arc_easy/test.jsonl.gz")]),
        "piqa": ("piqa/piqa.yaml", "validation",
                 [item | {"label": int(label)} for item, label in zip(records("piqa/valid.jsonl.gz"), labels, strict=True)]),
        "truthfulqa-mc1": ("truthfulqa/truthfulqa_mc1.yaml", "validation",
                           [truthful(item) for item in json.loads(read("truthfulqa/mc_task.json.gz"))]),
        "wikitext2": ("wikitext/wikitext.yaml", "test", wikitext_pages()),
        "gsm8k": ("gsm8k/gsm8k-cot.yaml", "test", records("gsm8k/test.jsonl.gz")),
    }
    for file in sorted((DATA / "blimp").glob("*.jsonl.gz")):
        paradigm = file.name.removesuffix(".jsonl.gz")
        items[f"blimp/{paradigm}"] = (f"blimp/{paradigm}.yaml", "train", records(f"blimp/{file.name}"))
    return items


def define(folder: Path, name: str, definition: str, split: str, items: list[dict]) -> str:
    """Writes a task of the harness's definition on these items; returns its name."""
    task = "focus_" + name.replace("/", "_").replace("-", "_")
    (folder / f"{task}.json").write_text("\n".join(json.dumps(item) for item in items))
    config = {"include": str(HARNESS_TASKS / definition), "task": task, "dataset_path": "json", "dataset_name": None, "tag": [],
              "dataset_kwargs": {"data_files": {split: str(folder / f"{task}.json")}},
              "training_split": None, "validation_split": None, "test_split": split}
    (folder / f"{task}.yaml").write_text(yaml.safe_dump(config))
    return task


def kept(samples: list[dict]) -> dict:
    """What is kept of one item; a generated text is there once for every filter."""
    first = samples[0]
    scores = {key: int(first[key]) for key in ("acc", "acc_norm") if key in first}
    responses = [response for responses in first["resps"] for response in responses]
    if isinstance(responses[0], str):
        return {"text": responses[0],
                "answers": {sample["filter"]: [sample["filtered_resps"][0], int(sample["exact_match"])] for sample in samples}}
    if isinstance(responses[0], float):
        return {"log_likelihoods": [round(responses[0], 5)]}
    return scores | {"log_likelihoods": [round(likelihood, 5) for likelihood, _ in responses],
                     "greedy": [int(greedy) for _, greedy in responses]}


def main() -> None:
    model_folder, out = Path(sys.argv[1]), Path(sys.argv[2])
    wanted = sys.argv[3:]
    tokenizer = PreTrainedTokenizerFast(tokenizer_file=str(model_folder / "tokenizer.json"))
    special = json.loads((model_folder / "tokenizer_config.json").read_text())
    tokenizer.bos_token, tokenizer.eos_token = special["bos_token"], special["eos_token"]
    tokenizer.pad_token = special["eos_token"]
    model = AutoModelForCausalLM.from_pretrained(model_folder, dtype="float32")
    results = {}
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        names = {}
        for name, (definition, split, items) in task_items().items():
            if not wanted or name.split("/")[0] in wanted:
                names[define(folder, name, definition, split, items)] = name
        lm = HFLM(pretrained=model, tokenizer=tokenizer, batch_size=1)
        manager = TaskManager(include_path=str(folder), include_defaults=False)
        run = lm_eval.simple_evaluate(model=lm, tasks=list(names), task_manager=manager, log_samples=True, bootstrap_iters=0)
    for task, name in names.items():
        scores = {key: value for key, value in run["results"][task].items() if isinstance(value, (int, float))}
        items = {}
        for sample in run["samples"][task]:
            items.setdefault(sample["doc_id"], []).append(sample)
        results[name] = {"scores": scores, "items": [kept(items[i]) for i in sorted(items)]}
    lines = [f"  {json.dumps(name)}: {json.dumps(result)}" for name, result in results.items()]
    out.write_text('{"lm_eval": "%s", "tasks": {\n%s\n}}\n' % (lm_eval.__version__, ",\n".join(lines)))


if __name__ == "__main__":
    main()

"""Our tokenizer against Hugging Face `tokenizers`, on random and on awkward texts (the test program build/*/bin/tokenize)."""

import gzip
import json
import os
import random
import subprocess
import time

import pytest
from conftest import ROOT, STORIES
from tokenizers import Tokenizer

FOLDERS = {name: ROOT / "data/tokenizers" / name for name in
           ["gpt2", "smollm2", "qwen2", "olmo2", "mistral", "gemma-style-512"]}
FOLDERS["stories260K"] = STORIES
FOLDERS["llama2"] = ROOT.parent / "shared/data/tokenizers/llama2"

AWKWARD = [
    "", " ", "  ", "\t", "\n", "\r\n", "\r\n\r\n  x", "a\r\nb\rc\n", "x" * 500, " " * 1000, " " * 700 + "x", "\n" * 100,
    "it's IT'S I'LL we'\u017fe don\u2019t", "1234567890 3.14 \u00bd \u0663\u0664 \u2167", "\u4f60\u597d\uff0c\u4e16\u754c\u3002 \u3053\u3093\u306b\u3061\u306f \uc548\ub155\ud558\uc138\uc694",
    "\U0001f999 \U0001f468\u200d\U0001f469\u200d\U0001f467 \U0001f1eb\U0001f1f7 e\u0301 \u0915\u094d\u0937 \u0e01\u0e33", "\u00a0\u2003\u3000\u180e\u200b\ufeff\u0085\x1c x",
    "<s>a</s> <unk>", "<|endoftext|> <|im_start|>user\n<|im_end|>", "\u2581\u2581a \u2581b", "<0x0A><0xFF>", "a\x00b", "\ufb01 \u212b \u1e9b\u0323 \u0130",
    "def f(x):\n    return {'a': [x**2]}  # \u00e9t\u00e9\n\n\n", "aaaaaaaa" * 200, "=" * 333, "\u00c4" * 99,
]
ALPHABETS = [
    " abcdefghij", "  \t\n\r", "0123456789 .,", "'sStTdDlLmM \u2019", "\u4e00\u4e8c\u4e09\u3042\u3044\uac00\ub098\u3002", "\u00e9\u00e8\u0301\u0308e\u0327\u0450\u0451\u0623\u0654",
    "\U0001f600\U0001f999\u200d\ufe0f\U0001f3fd\u2764", "<s>/<unk>|0xAF", "\u2581 _-=", "\u00a0\u2003\u3000\u180e\u200b\u0085\u2028",
]


def assigned_before_unicode_14(code_point):
    # Characters of newer versions have other classes in the two libraries' tables.
    import unicodedata
    return unicodedata.ucd_3_2_0.category(chr(code_point)) not in ("Cn", "Cs")


def random_texts(seed, specials, count):
    rng = random.Random(seed)
    for _ in range(count):
        parts = []
        for _ in range(rng.randrange(1, 12)):
            kind = rng.random()
            if kind < 0.15:
                parts.append(rng.choice(specials))
            elif kind < 0.3:
                points = (rng.randrange(0x20, 0x30000) for _ in range(12))
                parts.append("".join(chr(p) for p in points if assigned_before_unicode_14(p)))
            else:
                alphabet = rng.choice(ALPHABETS)
                parts.append("".join(rng.choice(alphabet) for _ in range(rng.randrange(1, 40))))
        yield "".join(parts)


def read_json(folder):
    file = folder / "tokenizer.json"
    return file.read_text(encoding="utf-8") if file.exists() else gzip.open(f"{file}.gz", "rt", encoding="utf-8").read()


def ours(path, requests):
    program = ROOT / os.environ.get("FOCUS_BUILD", "build/release") / "bin/tokenize"
    lines = "".join(json.dumps(request) + "\n" for request in requests)
    run = subprocess.run([program, path], input=lines, capture_output=True, text=True, encoding="utf-8", timeout=300)
    assert run.returncode == 0, run.stderr
    return [json.loads(line) for line in run.stdout.split("\n") if line]


def check(path, theirs, texts):
    requests = [{"text": text, "special": special} for text in texts for special in (False, True)]
    for request, answer in zip(requests, ours(path, requests), strict=True):
        expected = theirs.encode(request["text"], add_special_tokens=request["special"]).ids
        assert answer["ids"] == expected, repr(request["text"])
        assert answer["decoded"] == theirs.decode(expected, skip_special_tokens=False), repr(request["text"])
        assert "".join(answer["pieces"]) == answer["decoded"], repr(request["text"])


@pytest.mark.parametrize("name", FOLDERS)
def test_equals_hugging_face(name):
    folder = FOLDERS[name]
    if name == "llama2" and not folder.exists():
        pytest.skip("Llama 2's vocabulary is not here")
    document = read_json(folder)
    specials = [token["content"] for token in json.loads(document)["added_tokens"]]
    check(folder, Tokenizer.from_str(document), AWKWARD + list(random_texts(7, specials, 150)))
    check(folder, Tokenizer.from_str(document), [f"a{special} b {special}\n" for special in specials])


@pytest.mark.parametrize("name", ["gpt2", "qwen2", "mistral"])
def test_a_book_is_encoded_no_slower_than_by_hugging_face(name, tmp_path):
    book = "".join(json.loads(line)["text"] for line in gzip.open(ROOT / "data/books/train/jane-eyre.jsonl.gz", "rt", encoding="utf-8"))
    file = tmp_path / "book.txt"
    file.write_text(book[:300_000], encoding="utf-8")
    theirs = Tokenizer.from_str(read_json(FOLDERS[name]))
    start = time.perf_counter()
    expected = theirs.encode(book[:300_000], add_special_tokens=False).ids
    seconds = time.perf_counter() - start
    answers = ours(FOLDERS[name], [{"file": str(file)}] * 2)
    assert answers[0]["ids"] == expected
    assert min(answer["seconds"] for answer in answers) <= seconds


@pytest.mark.parametrize("name", ["gpt2", "mistral"])
def test_random_ids_decode_alike(name):
    rng = random.Random(3)
    theirs = Tokenizer.from_str(read_json(FOLDERS[name]))
    size = theirs.get_vocab_size()
    batches = [[rng.randrange(min(size, 300) if rng.random() < 0.7 else size) for _ in range(30)] for _ in range(100)]
    for ids, answer in zip(batches, ours(FOLDERS[name], [{"ids": ids} for ids in batches]), strict=True):
        assert answer["decoded"] == theirs.decode(ids, skip_special_tokens=False), ids
        assert "".join(answer["pieces"]) == answer["decoded"], ids


def test_invalid_utf8_is_read_as_python_replaces_it():
    theirs = Tokenizer.from_str(read_json(FOLDERS["gpt2"]))
    rng = random.Random(5)
    blobs = [bytes(rng.choice([0x41, 0x80, 0xC3, 0xA9, 0xE2, 0x82, 0xF0, 0x9F, 0xFF]) for _ in range(20)) for _ in range(100)]
    for blob, answer in zip(blobs, ours(FOLDERS["gpt2"], [{"hex": blob.hex()} for blob in blobs]), strict=True):
        assert answer["ids"] == theirs.encode(blob.decode("utf-8", errors="replace")).ids, blob


METASPACE = {"type": "Metaspace", "replacement": "\u2581", "prepend_scheme": "always", "split": True}
VARIANTS = {
    "metaspace always": {"pre_tokenizer": METASPACE, "decoder": METASPACE},
    "metaspace first, not split": {"pre_tokenizer": {**METASPACE, "prepend_scheme": "first", "split": False},
                                   "decoder": {**METASPACE, "prepend_scheme": "first"}},
    "metaspace never": {"pre_tokenizer": {**METASPACE, "prepend_scheme": "never"},
                        "decoder": {**METASPACE, "prepend_scheme": "never"}},
    "no decoder": {"decoder": None},
    "lower case, strip, NFKD": {"normalizer": {"type": "Sequence", "normalizers": [
        {"type": "Strip", "strip_left": True, "strip_right": True}, {"type": "NFKD"}, {"type": "StripAccents"},
        {"type": "Lowercase"}, {"type": "Replace", "pattern": {"Regex": "\\s+"}, "content": "\u2581"}]}},
    "digits, split": {"pre_tokenizer": {"type": "Sequence", "pretokenizers": [
        {"type": "Digits", "individual_digits": False},
        {"type": "Split", "pattern": {"Regex": "[,.=]"}, "behavior": "MergedWithNext", "invert": False}]}},
    "contiguous": {"pre_tokenizer": {"type": "Split", "pattern": {"Regex": "\\w"}, "behavior": "Contiguous", "invert": True}},
    "added tokens": {"added_tokens": [
        {"id": 0, "content": "<unk>", "special": True, "normalized": False, "single_word": False, "lstrip": False, "rstrip": False},
        {"id": 512, "content": "<mask>", "special": True, "normalized": False, "single_word": False, "lstrip": True, "rstrip": False},
        {"id": 513, "content": "word", "special": False, "normalized": True, "single_word": True, "lstrip": False, "rstrip": False},
        {"id": 514, "content": "a b", "special": False, "normalized": True, "single_word": False, "lstrip": False, "rstrip": True},
        {"id": 515, "content": "<mask><mask>", "special": True, "normalized": False, "single_word": False, "lstrip": False, "rstrip": True}]},
}


@pytest.mark.parametrize("variant", VARIANTS)
def test_component_equals_hugging_face(variant, tmp_path):
    document = json.loads(read_json(STORIES)) | VARIANTS[variant]
    path = tmp_path / "tokenizer.json"
    path.write_text(json.dumps(document), encoding="utf-8")
    specials = ["<s>", "<unk>", "<mask>", " <mask> ", "<mask><mask>  ", "word", " words", " word ", "a b", "aa b  "]
    check(path, Tokenizer.from_str(json.dumps(document)), AWKWARD + list(random_texts(11, specials, 150)))


BYTE_LEVEL = {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True, "use_regex": True}
BYTE_VARIANTS = {
    "prefix space": {"pre_tokenizer": BYTE_LEVEL},
    "byte level first": {"pre_tokenizer": {"type": "Sequence", "pretokenizers": [
        BYTE_LEVEL, {"type": "Digits", "individual_digits": True}]}},
    "byte level normalizer": {"normalizer": {"type": "ByteLevel"}, "pre_tokenizer": None},
    "ignore merges": {"model": {"ignore_merges": True}},
}


@pytest.mark.parametrize("variant", BYTE_VARIANTS)
def test_byte_level_component_equals_hugging_face(variant, tmp_path):
    document = json.loads(read_json(FOLDERS["gpt2"]))
    changes = BYTE_VARIANTS[variant]
    document |= {key: value for key, value in changes.items() if key != "model"}
    document["model"] |= changes.get("model", {})
    path = tmp_path / "tokenizer.json"
    path.write_text(json.dumps(document), encoding="utf-8")
    check(path, Tokenizer.from_str(json.dumps(document)), AWKWARD + list(random_texts(13, ["<|endoftext|>"], 100)))


def test_the_program_fails_on_an_unknown_component(tmp_path):
    document = json.loads(read_json(STORIES)) | {"pre_tokenizer": {"type": "BertPreTokenizer"}}
    path = tmp_path / "tokenizer.json"
    path.write_text(json.dumps(document), encoding="utf-8")
    program = ROOT / os.environ.get("FOCUS_BUILD", "build/release") / "bin/tokenize"
    run = subprocess.run([program, path], input="", capture_output=True, text=True, timeout=60)
    assert run.returncode == 1
    assert str(path) in run.stderr and "pre_tokenizer" in run.stderr and "BertPreTokenizer" in run.stderr

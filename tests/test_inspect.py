"""focus inspect: its figures against a plain PyTorch model of the formulas, its page in a browser, bad inputs."""

import gzip
import json
import re
import shutil
import signal
import subprocess
import time

import numpy as np
import pytest
import torch
import transformers
from browser import Browser, find_browser
from conftest import ROOT, STORIES, focus_binary
from safetensors.torch import load_file
from test_cli import RUN_FAILED, USAGE, refused

import focus_oracle as oracle

CONTEXT, WINDOW, SINKS, GROUPS = 128, 16, 4, 8
STORY = (ROOT / "data/tinystories/sample.txt.gz")
# Markup, quotes, controls, bytes that are no character by themselves, right-to-left marks.
HOSTILE = "</script><script>document.title='hit'</script> <!-- \"quoted\" 'single' &amp; \\ \x01\x7f \u202e\u2028 \U0001F9FF\u00e9 <img src=x onerror=alert(1)>\n"


@pytest.fixture(scope="module")
def trained(tmp_path_factory, focus):
    folder = tmp_path_factory.mktemp("trained")
    for name, seed in (("one", 0), ("two", 7)):
        result = focus("train", "--train", "centroids", "--model", STORIES, "--data", STORY, "--out", folder / name, "--context", CONTEXT,
                       "--window", WINDOW, "--groups", GROUPS, "--groups-per-token", 2, "--max-steps", 6, "--updates-per-step", 1,
                       "--list-windows", 2, "--seed", seed, "--quiet")
        assert result.returncode == 0, result.stderr
    return folder


@pytest.fixture(scope="module")
def inspect(focus, trained):
    def run(*arguments, data=STORY, adapter="one"):
        return focus("inspect", "--model", STORIES, "--adapter", trained / adapter / "adapter", "--data", data, "--context", CONTEXT,
                     "--quiet", *arguments)

    return run


@pytest.fixture(scope="module")
def report(inspect):
    result = inspect("--json", "--max-tokens", 400, "--query-rows", CONTEXT, "--top-tokens", 1000)
    assert result.returncode == 0, result.stderr
    return json.loads(result.stdout)


class Expected:
    """The same figures by transformers and the formulas."""

    def __init__(self, adapter, tokens):
        config = json.loads((adapter / "adapter_config.json").read_text())
        weights = load_file(adapter / "adapter_model.safetensors")
        layers = config["layers_to_transform"]
        prefix = "base_model.model." + config["module"] + ".focus."
        tensors = {layer: {key.removeprefix(prefix.format(layer)): value.float() for key, value in weights.items() if key.startswith(prefix.format(layer))}
                   for layer in layers}
        model = transformers.AutoModelForCausalLM.from_pretrained(STORIES, dtype=torch.float32)
        oracle.insert(model, config, tensors)
        tokenizer = transformers.AutoTokenizer.from_pretrained(STORIES)
        # Single line breaks inside a paragraph are joined by a space, as focus does with .txt files.
        text = re.sub(r"(?<!\n)\n(?!\n)", " ", gzip.decompress(STORY.read_bytes()).decode().strip("\n"))
        ids = tokenizer(text[:20 * tokens])["input_ids"][:tokens]
        self.windows = [ids[begin:begin + CONTEXT] for begin in range(0, tokens, CONTEXT)]
        self.ids = ids
        self.tokenizer = tokenizer
        self.lists = {layer: [] for layer in layers}  # by window, [sets, T], -1 for sinks
        self.contested = {layer: [] for layer in layers}  # by window, [sets, T, 2]: lists between which rounding decides, -1 for none
        self.confidence = {layer: [] for layer in layers}
        self.masks = {layer: [] for layer in layers}  # by window, bool [sets, T, T]
        self.kept = self.causal = 0
        self.mass = {layer: np.zeros(4) for layer in layers}  # all, window, sinks, lists
        record = {}
        real = oracle.attend

        def attend(module, query, key, value, attention_mask, **options):
            repeated = key.repeat_interleave(query.shape[1] // key.shape[1], dim=1)
            scores = query @ repeated.transpose(-1, -2) * query.shape[-1]**-0.5
            causal = torch.ones(scores.shape[-2:]).tril().bool()
            record[module.layer_idx] = (module.focus_hidden[0], scores.masked_fill(~causal, float("-inf")).softmax(-1)[0])
            return real(module, query, key, value, attention_mask, **options)

        transformers.AttentionInterface.register(oracle.NAME, attend)
        try:
            for window in self.windows:
                with torch.no_grad():
                    model(torch.tensor([window]), use_cache=False)
                for layer in layers:
                    self.add(layer, *record[layer], tensors[layer], config)
        finally:
            transformers.AttentionInterface.register(oracle.NAME, real)

    def add(self, layer, hidden, probability, router, config):
        scores, _ = oracle.route(hidden, router, config)
        lists = scores.argmax(-1)
        self.confidence[layer].append(scores.softmax(-1).max(-1).values[:, SINKS:].numpy())
        lists[:, :SINKS] = -1
        best = scores.topk(2)
        close = (best.values[..., 0] - best.values[..., 1] < 1e-3) & (lists >= 0)
        self.contested[layer].append(best.indices.masked_fill(~close.unsqueeze(-1), -1).numpy())
        self.lists[layer].append(lists.numpy())
        mask = oracle.allowed(hidden, router, config, None)
        self.masks[layer].append(mask)
        self.kept += int(mask.sum())
        self.causal += mask.shape[0] * len(hidden) * (len(hidden) + 1) // 2
        place = torch.arange(len(hidden))
        near = (place.unsqueeze(1) - place <= WINDOW) & mask[0].tril().logical_or(place.unsqueeze(1) >= place)
        sinks = ~near & (place < SINKS) & (place.unsqueeze(1) >= place)
        heads = mask.repeat_interleave(len(probability) // len(mask), 0)
        self.mass[layer] += [probability.sum(), (probability * near).sum(), (probability * sinks).sum(),
                             (probability * (heads & ~near & ~sinks)).sum()]

    def all_lists(self, layer, set_):
        return np.concatenate([window[set_] for window in self.lists[layer]])


@pytest.fixture(scope="module")
def expected(trained, report):
    return Expected(trained / "one" / "adapter", 400)


def test_sizes_and_top_tokens(report, expected):
    assert (report["tokens"], report["windows"], report["context"]) == (400, 4, CONTEXT)
    (run,) = report["runs"]
    label = lambda token: expected.tokenizer.convert_ids_to_tokens(token).replace("\u2581", " ").replace("<0x0A>", "\n")  # noqa: E731
    for layer in run["layers"]:
        assert len(layer["sets"]) == 4
        for entry in layer["sets"]:
            lists = expected.all_lists(layer["layer"], entry["set"])
            assert sum(entry["lists"]["size"]) == 400 - SINKS * 4
            # Calibration ends where some lists' keys are as good in another list: rounding decides there.
            contested = np.concatenate([window[entry["set"]] for window in expected.contested[layer["layer"]]])
            assert (contested[:, 0] >= 0).sum() <= 40
            for g in set(range(GROUPS)) - set(contested.flatten().tolist()):
                assert entry["lists"]["size"][g] == (lists == g).sum()
                tokens, counts = np.unique(np.array(expected.ids)[lists == g], return_counts=True)
                assert sorted(map(tuple, entry["lists"]["top"][g])) == sorted((label(int(t)), int(n)) for t, n in zip(tokens, counts))
                p = counts / counts.sum() if len(counts) else counts
                assert entry["lists"]["token_entropy"][g] == pytest.approx(-(p * np.log2(p)).sum() if len(counts) else 0, abs=1e-4)
        shares = [size / sum(entry["lists"]["size"]) for entry in layer["sets"] for size in entry["lists"]["size"]]
        assert layer["dominance"] == pytest.approx(max(shares), abs=1e-4)
        balance = layer["balance"]
        assert balance["below"] == sum(share * GROUPS < 0.4 for share in shares)
        assert balance["above"] == sum(share * GROUPS > 3 for share in shares)
        assert (balance["lowest"], balance["highest"]) == pytest.approx((min(shares) * GROUPS, max(shares) * GROUPS), abs=1e-3)


def test_purity_follows_from_the_classes(report, expected):
    (run,) = report["runs"]
    texts = [expected.tokenizer.convert_ids_to_tokens(token).replace("\u2581", " ").replace("<0x0A>", "\n") for token in expected.ids]
    counted = {
        "space": np.array([text.strip() == "" for text in texts]),
        "punctuation": np.array([text.strip() != "" and not re.search(r"\w|<s>", text) for text in texts]),
        "determiner": np.array([text.lower() in (" the", " a") and not (after[:1].isalpha()) for text, after in zip(texts, texts[1:] + [""])]),
    }
    majority = total = 0
    for layer in run["layers"]:
        for entry in layer["sets"]:
            columns = entry["lists"]
            lists = expected.all_lists(layer["layer"], entry["set"])
            for g, classes in enumerate(columns["classes"]):
                assert sum(classes) == columns["size"][g]
                named = dict(zip(report["classes"], classes))
                assert named["space"] == counted["space"][lists == g].sum()
                assert named["punctuation"] == counted["punctuation"][lists == g].sum()
                assert named["determiner"] >= counted["determiner"][lists == g].sum()
                if sum(classes):
                    assert columns["purity"][g] == pytest.approx(max(classes) / sum(classes), abs=1e-4)
                    assert classes[columns["class"][g]] == max(classes)
                majority += max(classes)
                total += sum(classes)
    assert run["purity"] == pytest.approx(majority / total, abs=1e-4)
    assert run["purity_shuffled"] < run["purity"]
    assert run["token_entropy_shuffled"] > run["token_entropy"]


def test_pairs_mass_and_confidence(report, expected):
    (run,) = report["runs"]
    assert run["pairs_kept"] == pytest.approx(expected.kept / expected.causal, abs=2e-4)
    for layer in run["layers"]:
        total, *parts = expected.mass[layer["layer"]]
        got = [layer["mass_window"], layer["mass_sinks"], layer["mass_lists"]]
        assert got == pytest.approx([part / total for part in parts], abs=1e-3)
        assert layer["mass_kept"] == pytest.approx(sum(got), abs=2e-4)
        confidence = np.concatenate([window.ravel() for window in expected.confidence[layer["layer"]]]).mean()
        assert layer["confidence"] == pytest.approx(confidence, abs=1e-3)
        assert layer["confidence_shuffled"] < layer["confidence"]
    for pair in run["pairs"]:
        assert pair["distance"] == pair["query_position"] - pair["key_position"] > WINDOW
        assert SINKS <= pair["key_position"] and 0 < pair["mass"] <= 1


def test_agreement_between_layers(report, expected):
    (run,) = report["runs"]

    def agreement(a, b):
        kept = (a >= 0) & (b >= 0)
        joint = np.zeros((GROUPS, GROUPS))
        np.add.at(joint, (a[kept], b[kept]), 1)
        joint /= joint.sum()
        entropy = lambda p: -(p[p > 0] * np.log2(p[p > 0])).sum()  # noqa: E731
        ha, hb = entropy(joint.sum(1)), entropy(joint.sum(0))
        return 2 * (ha + hb - entropy(joint)) / (ha + hb)

    pairs = [agreement(expected.all_lists(0, s), expected.all_lists(2, t)) for s in range(4) for t in range(4)]
    matrix = run["agreement"]["matrix"]
    assert matrix[0][2] == matrix[2][0] == pytest.approx(np.mean(pairs), abs=1e-3)


def test_same_figures_whatever_the_output(inspect, tmp_path):
    page, out = tmp_path / "page.html", tmp_path / "out"
    result = inspect("--max-tokens", 300, "--html", page, "--out", out)
    assert result.returncode == 0, result.stderr
    saved = json.loads((out / "inspect.json").read_text())
    again = json.loads(inspect("--max-tokens", 300, "--json").stdout)
    assert {key: saved[key] for key in again} == again
    data = json.loads(re.search(r'id="report-data">(.*?)</script>', page.read_text(), re.S)[1])
    assert {key: value for key, value in data["runs"][0].items() if key not in ("layers", "excerpt")} == {
        key: value for key, value in again["runs"][0].items() if key != "layers"}
    (run,) = again["runs"]
    assert f"{100 * run['pairs_kept']:.2f}%" in result.stdout and f"{run['purity']:.3f} (shuffled" in result.stdout
    assert str(tmp_path) not in page.read_text() and str(ROOT) not in page.read_text()
    assert "http://" not in page.read_text().replace("http://www.w3.org/2000/svg", "") and "https://" not in page.read_text()


def test_the_same_adapter_twice_agrees(inspect, trained):
    same = json.loads(inspect("--max-tokens", 300, "--json", "--compare-adapter", trained / "one" / "adapter").stdout)
    assert [layer["agreement"] for layer in same["compared"]] == [1.0] * 5
    assert same["runs"][0] == same["runs"][1]
    other = json.loads(inspect("--max-tokens", 300, "--json", "--compare-adapter", trained / "two" / "adapter").stdout)
    assert all(0 < layer["agreement"] < 1 for layer in other["compared"])
    assert [run["adapter"] for run in other["runs"]] == ["one/adapter", "two/adapter"]


def test_interrupt_leaves_nothing(trained, tmp_path):
    page = tmp_path / "page.html"
    process = subprocess.Popen([str(focus_binary()), "inspect", "--model", STORIES, "--adapter", trained / "one" / "adapter", "--data", STORY,
                                "--context", "64", "--max-tokens", "0", "--html", page], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                               stderr=subprocess.PIPE, text=True)
    assert "loaded in" in process.stderr.readline()
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=120)
    assert (process.returncode, out) == (1, "") and "interrupted" in err
    assert list(tmp_path.iterdir()) == []


class TestBadInput:
    @pytest.fixture()
    def page(self, tmp_path):
        return tmp_path / "page.html"

    def test_without_adapter(self, focus, page):
        refused(focus("inspect", "--model", STORIES, "--data", STORY, "--html", page), USAGE, "--adapter")
        assert not page.exists()

    def test_adapter_is_missing(self, inspect, page):
        refused(inspect("--html", page, adapter="nowhere"), RUN_FAILED, "nowhere")
        assert not page.exists()

    def test_second_adapter_is_missing(self, inspect, page, tmp_path):
        refused(inspect("--html", page, "--compare-adapter", tmp_path / "nowhere"), RUN_FAILED, "nowhere")
        assert not page.exists()

    def test_page_is_a_folder(self, inspect, tmp_path):
        refused(inspect("--html", tmp_path), USAGE, "--html", tmp_path)

    def test_page_lies_below_a_file(self, inspect, tmp_path):
        (tmp_path / "file").write_text("")
        refused(inspect("--html", tmp_path / "file" / "page.html"), RUN_FAILED, "--html")

    def test_text_of_sinks_alone(self, inspect, page, tmp_path):
        (tmp_path / "short.txt").write_text("Hi")
        refused(inspect("--html", page, data=tmp_path / "short.txt"), RUN_FAILED, "tokens", "sinks")
        assert not page.exists()

    def test_context_beyond_the_model(self, inspect):
        refused(inspect("--context", 4096), USAGE, "--context", 4096, 512)

    def test_routing_that_reads_ahead(self, inspect):
        refused(inspect("--routing", "paper"), USAGE, "--routing")

    def test_groups_cannot_change(self, inspect):
        refused(inspect("--groups", 16), USAGE, "--groups")

    def test_unknown_flag(self, inspect):
        refused(inspect("--compare-adaptor", "x"), USAGE, "--compare-adapter")

    def test_former_page_stays_when_a_run_fails(self, inspect, page, tmp_path):
        page.write_text("former")
        (tmp_path / "short.txt").write_text("Hi")
        assert inspect("--html", page, data=tmp_path / "short.txt").returncode == RUN_FAILED
        assert page.read_text() == "former" and sorted(path.name for path in tmp_path.iterdir()) == ["page.html", "short.txt"]


@pytest.fixture(scope="module")
def hostile_page(inspect, trained, tmp_path_factory):
    folder = tmp_path_factory.mktemp("page")
    # One token that ends the script by itself.
    model = shutil.copytree(STORIES, folder / "model")
    tokenizer = json.loads((model / "tokenizer.json").read_text())
    vocabulary, token = tokenizer["model"]["vocab"], HOSTILE.split(" ")[0]
    vocabulary[token] = vocabulary.pop(next(piece for piece, number in vocabulary.items() if number == 511))
    tokenizer["added_tokens"].append({"id": 511, "content": token, "single_word": False, "lstrip": False, "rstrip": False,
                                      "normalized": False, "special": False})
    (model / "tokenizer.json").write_text(json.dumps(tokenizer))
    (folder / "text.txt").write_text(HOSTILE * 3 + "Once upon a time, Lily and Tom went to the park. " * 30 + HOSTILE)
    result = inspect("--model", model, "--html", folder / "page.html", "--compare-adapter", trained / "two" / "adapter", "--excerpt", 100,
                     data=folder / "text.txt")
    assert result.returncode == 0, result.stderr
    assert "document.title='hit'" in (folder / "page.html").read_text()
    return folder / "page.html"


@pytest.fixture(scope="module")
def browser():
    binary = find_browser()
    if binary is None:
        pytest.skip("no Chromium is installed (apt-get install chromium)")
    with Browser(binary) as browser:
        yield browser


class TestPage:
    """In headless Chromium; skipped where none is installed (Debian's package chromium)."""

    @pytest.fixture()
    def phone(self, browser, hostile_page):
        browser.resize(375, 812, phone=True)
        browser.colours("dark")
        browser.open(hostile_page)
        return browser

    def test_nothing_breaks_or_is_loaded(self, phone, hostile_page):
        assert phone.errors == []
        assert {address.partition("#")[0] for address in phone.requests} == {hostile_page.resolve().as_uri()}
        assert phone.run("document.title") == "Focus: what the groups hold"
        assert phone.run("document.querySelectorAll('img, iframe, main script').length") == 0
        assert "[object" not in phone.run("document.body.innerText") and "undefined" not in phone.run("document.querySelector('main').innerText")
        assert phone.run("document.querySelector('main').innerText.includes('\\\\u0001')")  # a control character, made visible

    def test_fits_a_phone(self, phone):
        assert phone.run("document.documentElement.scrollWidth") == 375
        assert phone.run("""[...document.querySelectorAll('main figure, main .card, main .tile, .words, .panel')]
            .filter(node => node.getBoundingClientRect().right > 375.5).length""") == 0
        assert phone.run("document.querySelectorAll('figure svg').length") >= 12

    def test_colours_follow_the_system_and_the_button(self, phone):
        background = "getComputedStyle(document.body).backgroundColor"
        dark = phone.run(background)
        phone.colours("light")
        light = phone.run(background)
        assert dark != light
        phone.run("document.getElementById('theme').click()")
        assert phone.run(background) == dark
        phone.run("document.getElementById('theme').click()")
        assert phone.run(background) == light

    def test_text_view_by_keyboard(self, phone):
        for _ in range(200):
            phone.press("Tab")
            if phone.run("document.activeElement.classList.contains('words')"):
                break
        assert phone.run("document.activeElement.getAttribute('role')") == "listbox"
        assert phone.run("getComputedStyle(document.activeElement).outlineStyle") == "solid"
        chosen = "document.querySelector('[aria-selected=true]').id"
        assert phone.run(chosen) == phone.run("document.activeElement.getAttribute('aria-activedescendant')")
        first = phone.run(chosen)
        phone.press("ArrowRight")
        assert phone.run(chosen) == first[:-2] + str(int(first[-2:]) + 1)
        phone.press("ArrowUp")
        assert phone.run(chosen) != first
        phone.press("End")
        assert phone.run(chosen).endswith("-99")
        panel = phone.run("document.querySelector('.panel').innerText")
        assert "may attend" in panel and "probes" in panel
        kept, total = map(int, re.search(r"may attend (\d+) of (\d+) tokens", panel).groups())
        assert total == 100 and WINDOW < kept < total
        assert phone.run("document.querySelectorAll('.words .reach').length") == kept - WINDOW - 1

    def test_text_view_shows_what_is_allowed(self, browser, inspect, expected, tmp_path):
        page = tmp_path / "page.html"
        assert inspect("--max-tokens", 400, "--excerpt", CONTEXT, "--html", page).returncode == 0
        browser.resize(1000, 900)
        browser.open(page)
        window = 1  # of three whole windows the middle one
        for layer, head_set, token in ((0, 0, 127), (2, 3, 100), (4, 1, 60)):
            browser.run(f"""{{
                const [layers, sets] = document.querySelectorAll("#text select");
                [layers.value, sets.value] = ["{layer}", "{head_set}"];
                layers.dispatchEvent(new Event("change"));
                document.querySelector("#text [data-t='{token}']").click();
            }}""")
            far = [j for j in range(token) if token - j > WINDOW and expected.masks[layer][window][head_set, token, j]]
            assert browser.run("[...document.querySelectorAll('#text .reach')].map(span => Number(span.dataset.t))") == far
            assert f"list {expected.lists[layer][window][head_set][token] + 1}," in browser.run("document.querySelector('.panel').innerText")

    def test_charts_by_keyboard(self, phone):
        phone.run("document.querySelector('#layers svg').focus()")
        phone.press("ArrowRight")
        phone.press("ArrowRight")
        assert phone.run("document.querySelector('#layers .readout').textContent").startswith("layer 1: ")

    def test_controls(self, phone):
        cards = "document.querySelectorAll('#lists .card').length"
        assert phone.run(cards) == 2 * GROUPS
        phone.run("""{ const find = document.querySelector('#lists input'); find.value = 'lily'; find.dispatchEvent(new Event('input')); }""")
        assert 0 < phone.run(cards) < 2 * GROUPS
        assert phone.run("""[...document.querySelectorAll('#lists .card')].every(card => card.innerText.toLowerCase().includes('lily'))""")


@pytest.mark.smollm2
def test_report_of_smollm2(focus, tmp_path):
    """The whole way on the shipped adapter, over a part of the text. (50,000 tokens take two minutes on two free cores.)"""
    page, began = tmp_path / "page.html", time.monotonic()
    result = focus("inspect", "--model", ROOT / ".cache/models/smollm2-135m-instruct", "--dtype", "float32", "--adapter",
                   ROOT / "adapters/smollm2-135m-instruct-books", "--data", ROOT / "data/books/test", "--max-tokens", 2048, "--html", page, "--json")
    assert result.returncode == 0, result.stderr
    assert page.stat().st_size <= 3_000_000
    (run,) = json.loads(result.stdout)["runs"]
    assert len(run["layers"]) == 30 and run["purity"] > run["purity_shuffled"] + 0.1
    assert run["mass_lists"] > 2 * run["mass_lists_shuffled"]
    assert time.monotonic() - began < 120

"""Pictures of a page that `focus inspect --html` wrote, for docs/groups.md: groups_pictures.py PAGE FOLDER PREFIX [TOKEN LAYER SET]

Needs Chromium (Debian's package chromium). TOKEN, LAYER and SET choose what the text view shows.
"""

import json
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests"))
from browser import Browser, find_browser  # noqa: E402

PARTS = {"mass": "#layers figure:nth-child(1)", "purity": "#layers figure:nth-child(4)", "map": "#map .charts"}


def main(page: Path, folder: Path, prefix: str, *view: str) -> None:
    binary = find_browser() or sys.exit("no Chromium is installed (apt-get install chromium)")
    folder.mkdir(parents=True, exist_ok=True)
    with Browser(binary) as browser:
        browser.colours("light")
        browser.resize(1000, 1400)
        browser.open(page)
        time.sleep(0.5)  # charts draw themselves once they know their width
        for name, selector in PARTS.items():
            browser.screenshot(folder / f"{prefix}-{name}.png", selector)
        if view:
            token, layer, head_set = map(int, view)
            browser.run(f"""{{
                const [layers, sets] = document.querySelectorAll("#text select");
                layers.value = [...layers.options].find(option => option.text === "layer {layer}").value;
                sets.value = "{head_set}";
                layers.dispatchEvent(new Event("change"));
                document.querySelector("#text [data-t='{token}']").click();
                document.querySelector("#text .words").scrollTop = 0;
                document.querySelector("#text [data-t='{token}']").click();
            }}""")
            browser.screenshot(folder / f"{prefix}-text.png", "#text .reading")
        print(json.dumps(sorted(path.name for path in folder.iterdir())))


if __name__ == "__main__":
    if len(sys.argv) not in (4, 7):
        sys.exit(__doc__)
    main(Path(sys.argv[1]), Path(sys.argv[2]), *sys.argv[3:])

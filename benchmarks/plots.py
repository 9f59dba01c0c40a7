"""Draws docs/plots/*.svg from benchmarks/results/. Each file's description holds the figures that it shows.

    python benchmarks/plots.py

It needs matplotlib, and nothing of cuaug. Colors suit light and dark pages.
"""

from __future__ import annotations

import json
import textwrap
from collections.abc import Callable
from typing import Any
from xml.etree import ElementTree

import tables

FOLDER = tables.ROOT / "docs" / "plots"
OURS, PEER, TEXT = "#17977f", "#97a4ad", "#76848d"
NAMES = {"dali": "DALI", "opencv": "OpenCV", "pillow": "Pillow", "pyav": "PyAV"}
CACHES = {
    "none": "cuaug, from files",
    "decoded": 'cuaug, cache="decoded"',
    "decoded at 256": "cuaug, decoded at 256 pixels",
    "decoded at 256, on disk": "cuaug, decoded at 256 pixels, on disk",
}


def panel(title: str, unit: str, bars: dict[str, dict[str, float]]) -> dict[str, Any]:
    """One set of bars; `bars` are spreads by name."""
    rows = {name: [values["median"], values["min"], values["max"]] for name, values in bars.items()}
    return {"title": textwrap.fill(title, 46), "unit": unit, "bars": rows}


def suite(name: str) -> dict[str, Any]:
    """Images per second of one suite of end_to_end.py."""
    result = tables.load(f"end_to_end_{name}")
    own = {
        tables.FIRST_EPOCH: "cuaug, first epoch",
        tables.KEPT_INDEX: "cuaug, first epoch with a kept index",
        "cuaug": "cuaug, from the third epoch on",
    }
    if name == "detection":  # decodes whole images, so all epochs are alike
        own = {"cuaug": "cuaug"}
    titles = own | {peer: tables.peer_title(result, peer) for peer in tables.PEERS}
    found = {title: result["contenders"].get(key) for key, title in titles.items()}
    bars = {title: row["images_per_second"] for title, row in found.items() if row}
    return panel(f"{name}: {result['suite']['title']}", "images/s", bars)


def end_to_end() -> list[dict[str, Any]]:
    """From JPEG files to float32 batches."""
    return [suite("classification"), suite("1080p")]


def other_suites() -> list[dict[str, Any]]:
    """The same with longer chains, larger outputs and several views."""
    return [suite("heavy"), suite("detection"), suite("views")]


def first_batch() -> list[dict[str, Any]]:
    """Seconds to the first batch."""
    seconds = tables.load("first_batch")["seconds"]
    bars = {title.replace("`", ""): seconds[name]["from_start"] for name, title in tables.STARTERS.items()}
    return [panel("From starting the interpreter to the first batch", "seconds; less is better", bars)]


def training_step() -> list[dict[str, Any]]:
    """How much a training step slows down beside its loader."""
    steps = tables.load("training_step_cpu")["step"]
    bars = {NAMES.get(name, name): row["slower_percent"] for name, row in steps.items() if name != "in memory"}
    bars = dict(sorted(bars.items(), key=lambda bar: bar[1]["median"]))
    return [panel("A training step beside its loader, on two shared cores", "percent slower; less is better", bars)]


def caches() -> list[dict[str, Any]]:
    """Images per second of later epochs, by cache."""
    result = tables.load("cache")
    bars = {CACHES[name]: row["later_epochs"] for name, row in result["caches"].items() if name in CACHES}
    bars["DALI, from files"] = result["DALI from files"]["images_per_second"]
    return [panel("Later epochs, by cache", "images/s", bars)]


def video() -> list[dict[str, Any]]:
    """CPU milliseconds per clip."""
    result = tables.load("video")
    panels = []
    for name in ("340x256, key frames every 32, random, stride 4", "1280x720, key frames every 250, random, stride 4"):
        clips = result["cases"][name]
        bars = {NAMES.get(key, key): row["cpu_milliseconds_per_clip"] for key, row in clips.items()}
        panels.append(panel(f"16 frames of {name}", "CPU milliseconds per clip; less is better", bars))
    return panels


PICTURES: dict[str, Callable[[], list[dict[str, Any]]]] = {
    picture.__name__: picture for picture in (end_to_end, other_suites, first_batch, training_step, caches, video)
}


def label(value: float) -> str:
    """A bar's figure."""
    return f"{value:,.0f}" if value >= 100 else f"{value:.1f}" if value >= 10 else f"{value:.2f}"


def draw(name: str) -> None:
    """Write one picture: horizontal bars of medians, with lines from minimum to maximum."""
    import matplotlib

    matplotlib.use("svg")
    from matplotlib import pyplot

    style = {"svg.fonttype": "none", "svg.hashsalt": "cuaug", "font.family": "sans-serif", "font.size": 9}
    style |= {f"{part}.color": TEXT for part in ("text", "xtick", "ytick")}
    matplotlib.rcParams.update(style | {"axes.labelcolor": TEXT, "axes.edgecolor": TEXT})
    panels = PICTURES[name]()
    counts = [len(each["bars"]) for each in panels]
    height = sum(0.75 + 0.27 * count for count in counts)
    figure, axes = pyplot.subplots(
        len(panels), figsize=(5.8, height), height_ratios=counts, layout="constrained", squeeze=False
    )
    for axis, each in zip(axes[:, 0], panels, strict=True):
        names, rows = list(each["bars"]), list(each["bars"].values())
        medians = [row[0] for row in rows]
        ranges = [[row[0] - row[1] for row in rows], [row[2] - row[0] for row in rows]]
        colors = [OURS if title.startswith("cuaug") else PEER for title in names]
        drawn = axis.barh(names, medians, xerr=ranges, color=colors, ecolor=TEXT, capsize=2, height=0.7)
        axis.bar_label(drawn, labels=[label(value) for value in medians], padding=5, color=TEXT)
        axis.margins(x=0.14)
        axis.invert_yaxis()
        axis.spines[["top", "right"]].set_visible(False)
        axis.set_xlabel(each["unit"])
        axis.set_title(each["title"], loc="left", color=TEXT, fontsize=9, fontweight="bold")
    metadata = {"Date": None, "Creator": None, "Description": json.dumps(panels)}
    figure.savefig(FOLDER / f"{name}.svg", metadata=metadata, transparent=True)
    pyplot.close(figure)


def described(name: str) -> Any:
    """The figures in a picture's description, and its texts."""
    root = ElementTree.parse(FOLDER / f"{name}.svg").getroot()
    (description,) = root.iter("{http://purl.org/dc/elements/1.1/}description")
    return json.loads(description.text or ""), [text.text for text in root.iter("{http://www.w3.org/2000/svg}text")]


if __name__ == "__main__":
    FOLDER.mkdir(exist_ok=True)
    for picture in PICTURES:
        draw(picture)
        print(f"docs/plots/{picture}.svg")

"""Writes the tables of README.md and docs/benchmarks.md from benchmarks/results/.

Each table stands between `<!-- benchmarks/tables.py: NAME -->` and `<!-- end -->`. Results of quick runs are refused.

    python benchmarks/tables.py
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
RESULTS = ROOT / "benchmarks" / "results"
DOCUMENTS = (ROOT / "README.md", ROOT / "docs" / "benchmarks.md")
BLOCK = re.compile(r"(<!-- benchmarks/tables\.py: (\w+) -->\n).*?(<!-- end -->)", re.DOTALL)

SUITES = {
    "classification": "500 x 375, 108 kB",
    "1080p": "967 kB",
    "heavy": "500 x 375",
    "detection": "1920 x 1080",
    "views": "500 x 375",
}
#: Contender -> its column's title, and the package whose version is in the title.
PEERS = {
    "dali": ("DALI {}, CPU", "nvidia-dali-cuda120"),
    "pillow": ("Pillow", "pillow"),
    "opencv": ("OpenCV", "opencv-python-headless"),
    "albumentations": ("Albumentations {}", "albumentations"),
    "spdl": ("SPDL {}", "spdl"),
    "ffcv": ("FFCV {}", "ffcv"),
}
#: end_to_end.py's contenders that are timed on new loaders.
FIRST_EPOCH, KEPT_INDEX = "cuaug, first epoch", "cuaug, first epoch with a kept index"
RUNS = {"without": "no index", "first run": "first run", "later run": "later run"}
STARTERS = {
    "cuaug": "cuaug",
    "dali": "DALI",
    "pillow, forked": "`DataLoader`, forked",
    "spdl": "SPDL",
    "pillow": "`DataLoader`, spawned",
}
MOMENTS = {
    "from_start": "from starting the interpreter",
    "from_construction": "from constructing the loader, its module imported",
    "warm": "the same, a second loader of the process",
    "imports": "importing the loader, after torch",
}


def load(name: str) -> dict[str, Any]:
    """A result.

    Raises:
        ValueError: it comes from a quick run.
    """
    result: dict[str, Any] = json.loads((RESULTS / f"{name}.json").read_text())
    if result["settings"].get("quick"):
        raise ValueError(f"{name}.json: a quick run's figures mean nothing; run its program without --quick")
    return result


def rate(result: dict[str, Any], contender: str) -> float | None:
    """Images per second of a contender; None if it did not run."""
    row = result["contenders"].get(contender)
    return float(row["images_per_second"]["median"]) if row else None


def first_epoch(result: dict[str, Any], suite: str) -> float | None:
    """cuaug's images per second in the epoch that makes the index."""
    if suite == "detection":  # decodes whole images, so all epochs are alike
        return rate(result, "cuaug")
    return rate(result, FIRST_EPOCH)


def format_number(value: float | None) -> str:
    return "-" if value is None else f"{value:,.0f}"


def format_table(head: list[str], rows: list[list[str]]) -> str:
    return "\n".join(f"| {' | '.join(row)} |".replace("|  |", "| |") for row in [head, ["---"] * len(head), *rows])


def speed() -> str:
    """README.md: cuaug and DALI, first epochs first."""
    rows = []
    for suite, size in (("classification", "500 x 375"), ("1080p", "1920 x 1080")):
        result = load(f"end_to_end_{suite}")
        columns = {
            "first epoch": first_epoch(result, suite),
            "first epoch, with a kept index": rate(result, KEPT_INDEX),
            "from the third epoch on": rate(result, "cuaug"),
        }
        dali = format_number(rate(result, "dali"))
        rows += [[f"{size}, {when}", format_number(value), dali] for when, value in columns.items() if value]
    return format_table(["", "cuaug", peer_title(result, "dali")], rows)


def peer_title(result: dict[str, Any], peer: str) -> str:
    title, package = PEERS[peer]
    return title.format(".".join((result["versions"].get(package) or "?").split(".")[:2]))


def end_to_end() -> str:
    """docs/benchmarks.md: every suite, cuaug's epochs and the peers."""
    results = {suite: load(f"end_to_end_{suite}") for suite in SUITES}
    has_kept = any(rate(result, KEPT_INDEX) for result in results.values())
    own = ["cuaug, first epoch", *(["with a kept index"] if has_kept else []), "from the third on"]
    peers = [peer for peer in PEERS if any(peer in result["contenders"] for result in results.values())]
    head = ["images/s", *own, *(peer_title(results["classification"], peer) for peer in peers)]
    rows = []
    for suite, result in results.items():
        values = [first_epoch(result, suite), *([rate(result, KEPT_INDEX)] if has_kept else []), rate(result, "cuaug")]
        cells = [f"[{suite}](../benchmarks/results/end_to_end_{suite}.json), {SUITES[suite]}"]
        cells += [format_number(value) for value in values]
        for peer in peers:
            row = result["contenders"].get(peer, {})
            keys = ("cuaug_first_epoch_to_this", "cuaug_to_this")
            ratios = ", ".join(f"{row[key]['median']:.2f}" for key in keys if key in row)
            cells.append(f"{format_number(rate(result, peer))} ({ratios})" if row else "-")
        rows.append(cells)
    return format_table(head, rows)


def ranks() -> str:
    """docs/benchmarks.md: simulated ranks."""
    rows = []
    for suite in ("classification", "1080p"):
        for count, runs in load(f"end_to_end_{suite}").get("ranks", {}).items():
            for run, epochs in runs.items():
                cells = [f"{row['images_per_second']:,.0f} ({row['to_without']:.2f})" for row in epochs]
                rows.append([suite, count, RUNS[run], *cells, f"{epochs[0]['crops']:.0%}"])
    if not rows:
        return "No run on a quiet machine has measured them yet."
    return format_table(["", "ranks", "", "epoch 1", "epoch 2", "epoch 3", "crops in epoch 1"], rows)


def first_batch() -> str:
    """docs/benchmarks.md: seconds to the first batch."""
    seconds = load("first_batch")["seconds"]
    names = [name for name in STARTERS if name in seconds]
    rows = [
        [text, *(f"{seconds[name][moment]['median']:.2f}" for name in names)]
        for moment, text in MOMENTS.items()
        if moment in seconds["cuaug"]
    ]
    return format_table(["seconds to the first batch", *(STARTERS[name] for name in names)], rows)


TABLES: dict[str, Callable[[], str]] = {table.__name__: table for table in (speed, end_to_end, ranks, first_batch)}


def render(text: str) -> str:
    """A document with its tables written anew."""
    return BLOCK.sub(lambda found: f"{found[1]}\n{TABLES[found[2]]()}\n\n{found[3]}", text)


def main() -> None:
    for path in DOCUMENTS:
        before = path.read_text()
        after = render(before)
        path.write_text(after)
        print(f"{path.relative_to(ROOT)}: {'written' if after != before else 'unchanged'}")


if __name__ == "__main__":
    main()

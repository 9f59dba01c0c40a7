"""`cuaug preview`: the grid, its repeatability, and errors."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from cuaug import TransformError
from cuaug import transforms as T
from cuaug.commands import cli
from cuaug.commands.preview import Cell, chain_of, draw, grid, to_image
from tests.support.codec.encoded_images import photo
from tests.support.loader.further_pictures import color_of
from tests.support.sources import writers
from tests.support.sources.writers import samples

MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
GRAY = 119  # the background's levels


@pytest.fixture
def files(tmp_path):
    """Two images: 60 x 40 and 30 x 50 (width x height)."""
    paths = [tmp_path / "wide.png", tmp_path / "tall.png"]
    for path, (height, width) in zip(paths, [(40, 60), (50, 30)], strict=True):
        Image.fromarray(photo(height, width, height)).save(path)
    return [str(path) for path in paths]


@pytest.fixture
def run(tmp_path, capsys):
    """Runs the command with --output; (exit status, stdout, stderr)."""

    def run(*arguments: str) -> tuple[int, str, str]:
        status = cli.main(["preview", *arguments, "-o", str(tmp_path / "grid.png")])
        return status, *capsys.readouterr()

    return run


def picture(tmp_path: Path) -> np.ndarray:
    return np.asarray(Image.open(tmp_path / "grid.png").convert("RGB"))


def at(whole: np.ndarray, column: int, top: int, height: int, width: int, side: int) -> np.ndarray:
    """An image of the grid, centered in its column."""
    left = 6 + column * (side + 6) + (side - width) // 2
    return whole[top : top + height, left : left + width]


# --- the grid ---------------------------------------------------------------------------------------------------------


def test_the_first_column_is_the_image_and_the_others_are_results(files, run, tmp_path):
    status, out, errors = run(*files, "--transforms", "[T.RandomHorizontalFlip()]", "--columns", "8", "--side", "64")
    assert (status, errors) == (0, "") and out.endswith("grid.png: 2 x 9 images\n")
    whole = picture(tmp_path)
    assert whole.shape[1] == 6 + 9 * (64 + 6)
    original = photo(40, 60, 40)
    np.testing.assert_array_equal(at(whole, 0, 6, 40, 60, 64), original)
    mirrored = 0
    for column in range(1, 9):
        got = at(whole, column, 6, 40, 60, 64)
        mirrored += np.array_equal(got, original[:, ::-1])
        assert np.array_equal(got, original) or np.array_equal(got, original[:, ::-1])
    assert 0 < mirrored < 8, "draws differ"


def test_images_of_other_sizes_have_a_gray_background():
    small, large = Image.new("RGB", (10, 4), "white"), Image.new("RGB", (80, 40), "red")
    whole = np.asarray(grid([[Cell(small), Cell(large)]], 20))
    assert whole.shape == (6 + 10 + 6, 6 + 2 * 26, 3)
    assert (whole[9:13, 11:21] == 255).all(), "a small one is not enlarged, and lies in the middle"
    np.testing.assert_array_equal(whole[6:16, 32:52].reshape(-1, 3), np.tile([255, 0, 0], (200, 1)))
    covered = np.zeros(whole.shape[:2], dtype=bool)
    covered[9:13, 11:21] = covered[6:16, 32:52] = True
    assert (whole[~covered] == GRAY).all()


def test_a_caption_is_below_its_image_and_wrapped():
    cell = Cell(Image.new("RGB", (60, 20)), "stretched from -1 ... 1 and some more words that need lines")
    whole = np.asarray(grid([[cell, Cell(Image.new("RGB", (60, 20)))]], 60))
    words = (whole != GRAY).any(axis=-1)[26:]
    assert whole.shape[0] > 26 + 40 and words[:, 6:66].any()
    assert not words[:, 72:].any(), "nothing under the other one"


def test_results_of_any_size_are_shown(files, run, tmp_path):
    chain = "[T.RandomRotation(45, expand=True), T.RandomResize(10, 90)]"
    assert run(*files, "--transforms", chain, "--side", "70")[0] == 0
    assert picture(tmp_path).shape[1] == 6 + 7 * 76


# --- draws ------------------------------------------------------------------------------------------------------------


def test_the_grid_depends_on_the_seed(files, run, tmp_path):
    grids = []
    for seed in ("0", "0", "1"):
        assert run(*files, "--transforms", "T.RandomResizedCrop(16)", "--seed", seed)[0] == 0
        grids.append((tmp_path / "grid.png").read_bytes())
    assert grids[0] == grids[1] != grids[2]


def test_more_columns_keep_the_first_ones_and_rows_differ():
    chain, image = T.Compose([T.RandomResizedCrop(9)]), photo(40, 60)
    few, many = (list(draw(image, chain, count, seed=3)) for count in (2, 5))
    np.testing.assert_array_equal(few, many[:2])
    assert len({result.tobytes() for result in many}) == 5
    other = next(draw(image, chain, 1, seed=3, number=1))
    assert not np.array_equal(other, few[0])


# --- folders, and many pictures ---------------------------------------------------------------------------------------


def test_a_folder_means_all_images_below_it(files, run, tmp_path):
    """With or without class folders."""
    for name in ("cat/deep/0.png", "ant/1.png", "2.png"):
        path = tmp_path / "photos" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.new("RGB", (8, 8), (int(path.stem), 0, 0)).save(path)
    (tmp_path / "photos" / "notes.txt").write_text("no picture")
    status, out, _ = run(str(tmp_path / "photos"), files[0], "--transforms", "[]", "--columns", "1", "--side", "60")
    assert status == 0 and out.endswith("grid.png: 4 x 2 images\n")
    whole = picture(tmp_path)
    tops = [int(np.argwhere((whole == (red, 0, 0)).all(axis=-1))[0, 0]) for red in range(3)]
    assert tops[2] < tops[1] < tops[0], "in their paths' order"
    (tmp_path / "none").mkdir()
    assert f"'{tmp_path / 'none'}' holds no .jpg, .jpeg" in fails(run, str(tmp_path / "none"), "--transforms", "[]")


def test_at_most_64_images_are_shown_evenly_chosen(run, tmp_path):
    (tmp_path / "many").mkdir()
    paths = [tmp_path / "many" / f"{i:03}.png" for i in range(130)]
    for i, path in enumerate(paths):
        Image.new("RGB", (8, 8), (i, 255 - i, 7)).save(path)
    for given in ([str(tmp_path / "many")], list(map(str, paths))):
        status, out, _ = run(*given, "--transforms", "[]", "--columns", "1", "--side", "8")
        assert status == 0 and out.endswith("grid.png: 64 x 2 images, evenly chosen from 130\n")
        whole = picture(tmp_path)
        there = [i for i in range(130) if (whole == (i, 255 - i, 7)).all(axis=-1).any()]
        assert len(there) == 64 and there[0] == 0 and there[-1] >= 127 and max(np.diff(there)) == 3


# --- the chain --------------------------------------------------------------------------------------------------------


def test_a_file_defines_the_chain(tmp_path):
    path = tmp_path / "chain.py"
    for code in ("T.Resize(8)", "[T.Resize(8)]", "T.Compose([T.Resize(8)])"):
        path.write_text(f"from cuaug import transforms as T\ntransforms = {code}\n")
        assert "Resize(size=8)" in repr(chain_of(str(path)))


def test_an_expression_has_the_documented_names():
    code = "[T.RandomRotation(math.degrees(1)), cuaug.transforms.Normalize(0.5, 0.5), T.ToDtype(torch.float16)]"
    assert repr(chain_of(code)).count("\n    ") == 3


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("[T.RandomResizdCrop(9)]", "has no attribute 'RandomResizdCrop'"),
        ("[T.Resize(9)", "SyntaxError"),
        ("[T.Resize(-1)]", "size must be an integer from 1"),
        ("print", "transforms must be a sequence of transforms, not <built-in function print>"),
        ("[3]", "must hold cuaug transforms"),
        ("nowhere.py", "No such file or directory"),
        ("exit(3)", "SystemExit: 3"),
    ],
)
def test_errors_name_the_expression(text, says):
    with pytest.raises(TransformError) as caught:
        chain_of(text)
    assert str(caught.value).startswith("--transforms ") and text in str(caught.value) and says in str(caught.value)


@pytest.mark.parametrize(
    ("code", "says"),
    [
        ("x = 1\n", "must define `transforms`"),
        ("x = 1\n\ny = x / 0\n", "line 3: ZeroDivisionError"),
        ("x = (\n", "SyntaxError"),
        ("transforms = 7\n", "not 7"),
    ],
)
def test_errors_name_the_file(tmp_path, code, says):
    path = tmp_path / "chain.py"
    path.write_text(code)
    with pytest.raises(TransformError) as caught:
        chain_of(str(path))
    assert str(caught.value).startswith(f"--transforms {path}: ") and says in str(caught.value)


# --- the command ------------------------------------------------------------------------------------------------------


def fails(run, *arguments: str) -> str:
    status, out, errors = run(*arguments)
    assert status == 1 and out == ""
    assert errors.startswith("cuaug preview: ") and errors.count("\n") == 1 and "Traceback" not in errors
    return errors


def test_a_damaged_picture_is_named(files, run, tmp_path):
    damaged = tmp_path / "damaged.png"
    damaged.write_bytes(Path(files[0]).read_bytes()[:200])
    assert f"cannot decode '{damaged}'" in fails(run, files[1], str(damaged), "--transforms", "[]")
    assert not (tmp_path / "grid.png").exists()
    assert str(tmp_path / "none.png") in fails(run, str(tmp_path / "none.png"), "--transforms", "[]")


def test_a_chain_that_fails_names_the_image(files, run):
    errors = fails(run, *files, "--transforms", "T.RandomCrop(45)")
    assert files[0] in errors and "45" in errors


def test_a_grid_that_cannot_be_written(files, tmp_path, capsys):
    for output in (tmp_path / "no" / "grid.png", tmp_path / "grid.xyz"):
        assert cli.main(["preview", files[0], "--transforms", "[]", "-o", str(output)]) == 1
        assert capsys.readouterr().err.startswith("cuaug preview: ")


@pytest.mark.parametrize("wrong", [["--columns", "0"], ["--side", "-1"], ["--seed", "x"]])
def test_wrong_numbers_are_usage_errors(files, run, wrong):
    with pytest.raises(SystemExit) as caught:
        run(*files, "--transforms", "[]", *wrong)
    assert caught.value.code == 2


def test_as_a_program(files, tmp_path):
    done = subprocess.run(
        [sys.executable, "-m", "cuaug", "preview", *files, "--transforms", "[T.D4()]", "-o", str(tmp_path / "g.jpg")],
        capture_output=True,
        text=True,
        env=os.environ,
        timeout=120,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert Image.open(tmp_path / "g.jpg").size[0] == 6 + 7 * 230


@pytest.mark.slow
def test_a_file_name_that_is_no_text_is_printed(files, tmp_path):
    """In most locales stdout refuses such names, which once crashed the command at its end."""
    grid_of = os.fsdecode(os.fsencode(tmp_path) + b"/\xff.png")
    command = [sys.executable, "-m", "cuaug", "preview", files[0], "--transforms", "T.Resize(8)", "-o", grid_of]
    environment = os.environ | {"PYTHONIOENCODING": "utf-8:strict"}
    done = subprocess.run(command, capture_output=True, text=True, env=environment)
    assert (done.returncode, done.stderr) == (0, "") and "\\udcff.png: 1 x 7 images" in done.stdout


def test_a_mix_shows_the_image_mixed_with_itself():
    image = photo(6, 8)
    np.testing.assert_array_equal(next(draw(image, T.Compose([T.MixUp(num_classes=2)]), 1)), image)
    mosaic = next(draw(image, T.Compose([T.Resize((8, 8)), T.Mosaic(16, (-0.5, -0.5))]), 1))
    assert mosaic.ndim == 3 and mosaic.shape[-1] == 3


def test_views_of_several_sizes_of_a_mix_are_shown():
    """A mix takes a batch; the one image comes from each stack."""
    chain = T.Compose([T.MixUp(num_classes=2), T.MultiView([T.CenterCrop(10), T.CenterCrop(20)])])
    picture, _ = to_image(next(draw(photo(40, 60), chain, 1)), chain)
    assert picture.size == (20, 30)


# --- sources, targets and mixes ---------------------------------------------------------------------------------------


def test_every_source_is_shown(run, tmp_path):
    content = samples(3)
    writers.write_files(tmp_path, content)
    writers.write_shards(tmp_path, content)
    writers.write_hdf5(tmp_path, content)
    for name, count in (("table.csv", 3), ("train-{0..1}.tar", 3), ("data.h5", 3), ("list.txt", 3)):
        status, out, errors = run(str(tmp_path / name), "--transforms", "[]", "--columns", "1", "--side", "8")
        assert (status, errors) == (0, "") and out.endswith(f"grid.png: {count} x 2 images\n"), name
        whole = picture(tmp_path)
        assert all((whole == color_of(sample.number)).all(axis=-1).any() for sample in content), name
    assert "nothing.csv" in fails(run, str(tmp_path / "nothing.csv"), "--transforms", "[]")


def test_the_limit(run, tmp_path):
    writers.write_files(tmp_path, samples(9))
    status, out, _ = run(str(tmp_path), "--transforms", "[]", "--columns", "1", "--side", "8", "--limit", "4")
    assert status == 0 and out.endswith("grid.png: 4 x 2 images, evenly chosen from 9\n")


def write_coco(folder: Path) -> Path:
    """Two images with one box each."""
    for number in (1, 2):
        Image.new("RGB", (40, 30)).save(folder / f"{number}.png")
    data = {
        "images": [{"id": i, "file_name": f"{i}.png", "height": 30, "width": 40} for i in (1, 2)],
        "annotations": [{"id": i, "image_id": i, "category_id": 1, "bbox": [4, 10, 8, 16]} for i in (1, 2)],
        "categories": [{"id": 1, "name": "cat"}],
    }
    (folder / "coco.json").write_text(json.dumps(data))
    return folder / "coco.json"


def test_boxes_are_drawn_and_follow(run, tmp_path):
    path = write_coco(tmp_path)
    chain = "[T.RandomHorizontalFlip(1)]"
    status, _, errors = run(str(path), "--transforms", chain, "--columns", "1", "--side", "40")
    assert (status, errors) == (0, "")
    whole = picture(tmp_path)
    original, flipped = (at(whole, column, 6, 30, 40, 40).any(axis=(0, 2)).nonzero()[0] for column in (0, 1))
    assert original[0] == 4 and flipped[-1] in (35, 36)


def test_mixes_mix_the_images_that_are_shown(run, tmp_path):
    for number, color in enumerate(["red", "lime", "blue"]):
        Image.new("RGB", (20 + number, 20), color).save(tmp_path / f"{number}.png")
    chain = "[T.Resize((20, 20)), T.MixUp(alpha=1e6, num_classes=3), T.Normalize(0.5, 0.5)]"
    status, _, errors = run(str(tmp_path), "--transforms", chain, "--columns", "2", "--side", "20")
    assert (status, errors) == (0, "")
    whole, colors = picture(tmp_path), [(255, 0, 0), (0, 255, 0), (0, 0, 255)]
    centers = [np.argwhere((whole == color).all(axis=-1)).mean(axis=0) for color in colors]
    for k, (y, _) in enumerate(centers):
        mixed = whole[round(y), 6 + 26 + 10].astype(int)
        expected = np.add(colors[k], colors[(k + 1) % 3]) / 2
        assert np.abs(mixed - expected).max() <= 2, "each with the next one, the last one with the first"
    assert "different sizes" in fails(run, str(tmp_path), "--transforms", "[T.CutMix(num_classes=3)]")


def test_a_mosaic_of_annotated_images(run, tmp_path):
    path = write_coco(tmp_path)
    chain = "[T.Resize((30, 40)), T.Mosaic(48)]"
    status, _, errors = run(str(path), "--transforms", chain, "--columns", "2", "--side", "48")
    assert (status, errors) == (0, "")
    assert at(picture(tmp_path), 1, 6, 48, 48, 48).any(), "boxes on black images"

"""Tensors whose values nobody can read are refused by name, as images and as targets, and cost one sample."""

from __future__ import annotations

import warnings
from collections.abc import Callable

import numpy as np
import pytest
import torch

import cuaug
from cuaug import transforms as T
from cuaug.images.image_types import tensor_fault
from cuaug.sources import FromDataset, FromIterable

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # torch warns of each kind when the first is made
    torch.zeros(2, 2).to_sparse_csr()
    torch.nested.nested_tensor([torch.zeros(2)])

MAKE: dict[str, tuple[Callable[[torch.Tensor], torch.Tensor], str]] = {
    "meta": (lambda x: x.to("meta"), "a tensor on meta"),
    "sparse": (torch.Tensor.to_sparse, "a tensor of layout torch.sparse_coo"),
    "mkldnn": (lambda x: x.float().to_mkldnn(), "a tensor of layout torch._mkldnn"),
    "nested": (lambda x: torch.nested.nested_tensor([x, x]), "a nested tensor"),
    "jagged": (lambda x: torch.nested.nested_tensor([x, x], layout=torch.jagged), "a nested tensor"),
    "gradient": (lambda x: x.float().clone().requires_grad_(), "no gradient flows through transforms"),
}
IMAGE = torch.zeros(3, 8, 8, dtype=torch.uint8)
TARGETS = {
    "boxes": torch.tensor([[0.0, 0, 4, 4]]),
    "masks": torch.zeros(1, 8, 8),
    "mask": torch.zeros(8, 8),
    "keypoints": torch.zeros(1, 2, 2),
    "labels": torch.zeros(1),
    "depth": torch.zeros(8, 8),
}
CHAIN = T.Compose([T.RandomHorizontalFlip(), T.Resize(8)])
every_kind = pytest.mark.parametrize("kind", MAKE)


class Pairs:
    """Six items, the third of which is bad."""

    def __init__(self, good, bad) -> None:
        self.good, self.bad = good, bad

    def __len__(self) -> int:
        return 6

    def __getitem__(self, index):
        return self.bad if index == 2 else self.good

    def __iter__(self):
        return map(self.__getitem__, range(6))


def load(source, reason: str, **options) -> None:
    errors: list[cuaug.DecodeError] = []
    options |= {"on_error": "skip", "error_callback": errors.append, "batch_size": 3, "device": "cpu"}
    with cuaug.Loader(source, CHAIN, **options) as loader:
        assert [int(i) for batch in loader for i in batch.indices] == [0, 1, 3, 4, 5]
    assert [error.index for error in errors] == [2] and reason in str(errors[0])


@every_kind
@pytest.mark.parametrize("shape", [(3, 8, 8), (2, 3, 8, 8), (1, 2, 3, 8, 8)])
def test_images(kind, shape):
    make, reason = MAKE[kind]
    with pytest.raises(cuaug.TransformError, match=f"^image must be a dense tensor, not .*{reason}"):
        CHAIN(make(torch.zeros(shape)))


@every_kind
def test_an_image_of_a_dataset_costs_its_sample(kind):
    make, reason = MAKE[kind]
    for source in (FromDataset(Pairs(IMAGE, make(IMAGE))), FromIterable(Pairs(IMAGE, make(IMAGE)), 6)):
        load(source, reason)


@every_kind
@pytest.mark.parametrize("name", TARGETS)
def test_targets(kind, name):
    make, reason = MAKE[kind]
    others = {"boxes": TARGETS["boxes"]} if name == "labels" else {}
    bad = make(TARGETS[name])
    with pytest.raises(cuaug.TransformError, match=f"^{name} must be a dense tensor, not .*{reason}"):
        CHAIN(IMAGE, {**others, name: bad})
    if name != "depth":  # images under a name that nothing explains end the run
        good, target = (IMAGE, others | {name: TARGETS[name]}), (IMAGE, others | {name: bad})
        load(FromDataset(Pairs(good, target)), reason)


@every_kind
@pytest.mark.parametrize("wrap", [lambda x: x, lambda x: {"a": x}, lambda x: (1, [x])], ids=["bare", "dict", "nested"])
def test_labels(kind, wrap):
    make, reason = MAKE[kind]
    load(FromDataset(Pairs((IMAGE, wrap(torch.zeros(2))), (IMAGE, wrap(make(torch.zeros(2)))))), reason)
    with pytest.raises(cuaug.ArgumentError, match=f"labels must be a dense tensor, not .*{reason}"):
        cuaug.sources.Files(["a.png"], make(torch.zeros(1)))


@pytest.mark.parametrize(
    "value", [2**63, -(2**63) - 1, 10**5000, np.uint64(2**63)], ids=["2^63", "-2^63-1", "10^5000", "uint64"]
)
@pytest.mark.parametrize("wrap", [lambda x: x, lambda x: {"a": x}, lambda x: [0, x]], ids=["bare", "dict", "list"])
def test_integers_beyond_int64_cost_their_sample(value, wrap):
    source = FromDataset(Pairs((IMAGE, wrap(1)), (IMAGE, wrap(value))))
    load(source, "beyond int64")
    with cuaug.Loader(source, CHAIN, batch_size=6, collate_fn=list, device="cpu") as loader:  # it merges any labels
        assert next(iter(loader)).labels[2] == wrap(value)


def test_views_and_gradients_that_are_not_wanted_pass():
    negative = torch.imag(torch.view_as_complex(torch.ones(2, 4, 2)).conj())
    assert negative.is_neg() and tensor_fault(negative) is None
    _, moved = CHAIN(IMAGE, {"keypoints": negative[..., :2]})
    assert moved["keypoints"].shape == (2, 2)
    with torch.no_grad():
        assert CHAIN(torch.zeros(3, 8, 8, requires_grad=True)).shape == (3, 8, 8)


@pytest.mark.parametrize("name", ["max_pixels", "max_bytes", "index_bytes"])
def test_limits_beyond_native_integers_are_the_largest(name):
    """2**64 wrapped to 0, and all images were above that limit."""
    assert {getattr(cuaug.DecodeOptions(**{name: n}), name) for n in (2**63 - 1, 2**63, 2**70)} == {2**63 - 1}
    for wrong in (True, -1, 1.0, "1"):
        with pytest.raises(cuaug.ArgumentError, match=f"^{name} must be an integer"):
            cuaug.DecodeOptions(**{name: wrong})


def test_numbers_beyond_native_integers_are_refused():
    with pytest.raises(cuaug.ArgumentError, match=r"^source must be an integer below"):
        cuaug.RepeatedSampler(2**63)

"""Labels of the CUDA pipeline: uploaded by one copy from pinned memory."""

from __future__ import annotations

from collections import OrderedDict
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch

from cuaug.errors import ArgumentError
from cuaug.pipeline.cuda import cuda_pipeline
from cuaug.pipeline.resolve_device import resolve_labels_device

META = torch.device("meta")


class Pair(NamedTuple):
    left: Any
    right: Any


class Named(torch.Tensor):
    """A tensor with an attribute, as a tv_tensor."""

    format: str


def test_every_dense_tensor_is_uploaded_by_one_copy(fake):
    """Of any dtype, shape and strides; all else stays, and the structure too."""
    named = torch.arange(3.0).as_subclass(Named)
    named.format = "xyxy"
    sparse = torch.eye(3).to_sparse()
    labels = {
        "a": torch.arange(12).view(3, 4).t(),
        "b": [{"boxes": torch.zeros(0, 4), "mask": torch.ones(2, 5, dtype=torch.bool)}, {"boxes": named}],
        "c": Pair(torch.tensor(0.5, dtype=torch.float64), "text"),
        "d": OrderedDict(x=torch.arange(3).to(torch.uint16), y=None, z=np.arange(2)),
        "e": sparse,
    }
    uploaded, memory = cuda_pipeline.upload_labels(labels, torch.device("cpu"))
    assert fake.torch.allocations == [("pinned", memory.nbytes)]
    assert type(uploaded["c"]) is Pair and uploaded["c"].right == "text" and type(uploaded["d"]) is OrderedDict
    assert uploaded["e"] is sparse and uploaded["d"]["y"] is None and uploaded["d"]["z"] is labels["d"]["z"]
    boxes = uploaded["b"][1]["boxes"]
    assert type(boxes) is Named and boxes.format == "xyxy"
    pairs = [
        (uploaded["a"], labels["a"]),
        *((uploaded["b"][0][name], labels["b"][0][name]) for name in ("boxes", "mask")),
        (boxes, named),
        (uploaded["c"].left, labels["c"].left),
        (uploaded["d"]["x"], labels["d"]["x"]),
    ]
    for got, want in pairs:
        assert got.dtype == want.dtype and got.shape == want.shape and got.tolist() == want.tolist()
        assert got.untyped_storage().data_ptr() == memory.data_ptr() and got.data_ptr() % 64 == 0


def test_labels_without_tensors_need_no_copy(fake):
    labels = ["a", {"b": 3}, None]
    assert cuda_pipeline.upload_labels(labels, META) == (labels, None) and not fake.torch.allocations


def test_labels_device_is_the_loaders_or_the_cpu():
    cpu, gpu = torch.device("cpu"), torch.device("cuda", 1)
    for value in (None, "cuda", "cuda:1", gpu, torch.device("cuda")):
        assert resolve_labels_device(value, gpu) == gpu
    for value in ("cpu", cpu):
        assert resolve_labels_device(value, gpu) == resolve_labels_device(value, cpu) == cpu
    for value, device in (("cuda:0", gpu), ("cuda", cpu), ("gpu", gpu), (0, gpu)):
        with pytest.raises(ArgumentError, match=r"^labels_device must be None, which is the loader's device"):
            resolve_labels_device(value, device)

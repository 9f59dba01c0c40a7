"""Read-ahead: how spans become requests."""

from __future__ import annotations

import sys
import threading

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from cuaug.remote.read_ahead import _GAP_BYTES, ReadAhead, _coalesce
from cuaug.remote.transport import RemoteObject

SPANS = st.tuples(st.integers(-1, 2), st.integers(0, 2_000_000), st.integers(0, 300_000))


@given(st.integers(1, 3).flatmap(lambda k: st.lists(st.lists(SPANS, min_size=k, max_size=k), min_size=1)), st.data())
def test_requests_hold_their_spans(samples, data):
    limit = data.draw(st.sampled_from([1000, 400_000, 4 << 20, 1 << 30]))
    spans = np.array(samples, dtype=np.int64)
    requests, request_of = _coalesce(spans, limit)
    assert request_of.shape == spans.shape[:2] and ((request_of < 0) == (spans[..., 0] < 0)).all()
    needs = []
    for i, (number, begin, end, users) in enumerate(requests.tolist()):
        rows, _ = np.nonzero(request_of == i)
        own = spans[request_of == i]
        assert users == len(set(rows.tolist()))
        assert (own[:, 0] == number).all()
        assert own[:, 1].min() == begin and (own[:, 1] + own[:, 2]).max() == end
        assert len(own) == 1 or end - begin <= min(limit, 4 << 20) or len({*own[:, 1].tolist()}) == 1
        covered = np.sort(own[:, 1])
        assert (np.diff(covered) <= 300_000 + _GAP_BYTES).all()
        needs.append(rows.min())
    assert needs == sorted(needs), "in the order in which samples need them"


class _Zeros:
    connections = 1

    def read(self, remote: RemoteObject, offset: int, size: int, stop: threading.Event | None = None) -> bytes:
        return bytes(size)


def test_closing_at_the_interpreters_exit_takes_no_lock(monkeypatch):
    """Python ends daemon threads at its exit wherever they are; a lock that one holds is never released."""
    batches = [np.array([0])]
    ahead = ReadAhead(_Zeros(), [], batches, lambda indices: np.full((len(indices), 1, 3), -1), 1 << 20)
    with ahead._lock, monkeypatch.context() as patch:
        patch.setattr(sys, "is_finalizing", lambda: True)
        closing = threading.Thread(target=ahead.close, daemon=True)
        closing.start()
        closing.join(600)
        assert not closing.is_alive()
    ahead.close()

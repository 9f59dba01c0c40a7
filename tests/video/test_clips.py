"""`ClipSampler` beside a second implementation, frame by frame."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cuaug.errors import ArgumentError, DecodeError
from cuaug.sampling.clip_sampler import ClipSampler

lengths = st.integers(1, 60)


@st.composite
def cases(draw):
    """(sampler, seconds, first, end, draws) of strides."""
    count = draw(lengths)
    first = draw(st.integers(0, count - 1))
    end = draw(st.integers(first + 1, count))
    frames = draw(st.integers(1, 12))
    sampling = draw(st.sampled_from(["random", "uniform", "all"]))
    sampler = ClipSampler(
        frames,
        draw(st.integers(1, 7)),
        sampling=sampling,
        clips_per_video=1 if sampling == "all" else draw(st.integers(1, 4)),
        step=draw(st.none() | st.integers(1, 9)) if sampling == "all" else None,
        pad=draw(st.sampled_from(["last", "loop"])),
    )
    seconds = np.cumsum(draw(st.lists(st.floats(0.01, 0.3), min_size=count, max_size=count)))
    draws = np.array(draw(st.lists(st.floats(0, 1, exclude_max=True), min_size=frames, max_size=frames)))
    return sampler, seconds, first, end, draws


def reference(sampler, start, first, end):
    """Frames one by one: the k-th lies k strides after the start, and the clip repeats where the range ends."""
    inside = [n for n in range(start, end, sampler.stride)][: sampler.frames]
    frames, padding = list(inside), [False] * len(inside)
    while len(frames) < sampler.frames:
        frames.append(inside[-1] if sampler.pad == "last" else inside[len(frames) % len(inside)])
        padding.append(True)
    return frames, padding


def starts(sampler, first, end):
    """Frames from which a whole clip fits; at least the first."""
    fitting = [s for s in range(first, end) if s + (sampler.frames - 1) * sampler.stride < end]
    return fitting or [first]


@given(cases())
def test_clips_equal_the_reference(case):
    sampler, seconds, first, end, draws = case
    fitting = starts(sampler, first, end)
    count = sampler.count(seconds, first, end)
    if sampler.sampling == "all":
        step = sampler.step or sampler.frames * sampler.stride
        expected = fitting[::step]
    elif sampler.sampling == "uniform" and sampler.clips_per_video == 1:
        expected = [fitting[(len(fitting) - 1) // 2]]
    elif sampler.sampling == "uniform":
        last = sampler.clips_per_video - 1
        expected = [fitting[round(k * (len(fitting) - 1) / last)] for k in range(last + 1)]
    else:
        expected = [fitting[int(draws[0] * len(fitting))]] * sampler.clips_per_video
    assert count == len(expected)
    for clip, start in enumerate(expected):
        numbers, padding = sampler.choose(seconds, clip, first, end, draws)
        assert (numbers.tolist(), padding.tolist()) == reference(sampler, start, first, end)


@given(st.integers(1, 12), st.integers(2, 50), st.floats(0, 1, exclude_max=True))
def test_random_clips_reach_every_place(frames, count, draw):
    sampler = ClipSampler(frames, pad="last")
    seconds, places = np.arange(count) / 25, starts(sampler, 0, count)
    for k in range(len(places)):
        numbers, _ = sampler.choose(seconds, 0, 0, count, np.full(frames, (k + draw) / len(places)))
        assert abs(int(numbers[0]) - places[k]) <= 1  # (k + draw) / n * n may round across an edge
    first, last = (
        sampler.choose(seconds, 0, 0, count, np.full(frames, edge))[0][0] for edge in (0.0, np.nextafter(1, 0))
    )
    assert (first, last) == (places[0], places[-1])


@given(st.lists(st.floats(0.005, 0.5), min_size=2, max_size=60), st.integers(1, 10), st.floats(1, 60), st.data())
def test_fps_takes_the_frame_shown_at_each_time(gaps, frames, fps, data):
    seconds = np.cumsum(gaps) - gaps[0]
    draw = data.draw(st.floats(0, 1, exclude_max=True))
    numbers, padding = ClipSampler(frames, fps=fps, pad="last").choose(
        seconds, 0, 0, len(seconds), np.full(frames, draw)
    )
    start, ends = int(numbers[0]), [*seconds[1:], 2 * seconds[-1] - seconds[-2]]
    for k, (number, is_padding) in enumerate(zip(numbers.tolist(), padding.tolist(), strict=True)):
        time = seconds[start] + k / fps
        if is_padding:
            assert time >= ends[-1] - 2e-6 and number == numbers[~padding][-1]
        else:
            assert seconds[number] - 2e-6 <= time <= ends[number] + 2e-6


@given(st.integers(1, 12), st.integers(1, 60), st.data())
def test_segments_hold_one_frame_each(frames, count, data):
    draws = np.array(data.draw(st.lists(st.floats(0, 1, exclude_max=True), min_size=frames, max_size=frames)))
    sampler = ClipSampler(frames, sampling="segments", pad="last")
    numbers, padding = sampler.choose(np.arange(count) / 25, 0, 0, count, draws)
    if count >= frames:
        edges = [k * count // frames for k in range(frames + 1)]
        segments = [list(range(a, b)) for a, b in itertools.pairwise(edges)]
        assert numbers.tolist() == [part[int(draw * len(part))] for part, draw in zip(segments, draws, strict=True)]
        assert not padding.any() and len(set(numbers.tolist())) == frames
    else:
        assert set(numbers.tolist()) == set(range(count)) and padding.sum() == frames - count


def test_short_videos_are_refused_by_default():
    with pytest.raises(DecodeError, match=r"10 frames from 0.000 s on, too few for a clip of 4 frames at stride 4"):
        ClipSampler(4, 4).choose(np.arange(10) / 25, 0, 0, 10, np.zeros(4))
    with pytest.raises(DecodeError, match="holds none of its 10 frames"):
        ClipSampler(4).choose(np.arange(10) / 25, 0, 10, 10, np.zeros(4))


@pytest.mark.parametrize(
    "arguments, reason",
    [
        ({"frames": 0}, "frames must be an integer of at least 1"),
        ({"stride": 0}, "stride must be"),
        ({"fps": 0.0}, "fps must be a positive number"),
        ({"fps": 5, "stride": 2}, "give one of them"),
        ({"sampling": "middle"}, "sampling must be one of"),
        ({"pad": "zeros"}, "pad must be one of"),
        ({"step": 3}, "step is for sampling='all'"),
        ({"sampling": "all", "clips_per_video": 2}, "as many clips as fit"),
        ({"sampling": "segments", "stride": 2}, "takes no stride"),
    ],
)
def test_arguments(arguments, reason):
    with pytest.raises(ArgumentError, match=reason):
        ClipSampler(**{"frames": 4} | arguments)

"""Where a loader's time goes: recorded per stage, summed up as the bottleneck, shown as a timeline.

bottleneck.py       `Stats`, the totals of a loader: its bottleneck in one line, and a table
recorder.py         `Recorder` and `Clock`: threads report their stages
cuda_events.py      times of the GPU, by CUDA events
profile.py          `Profile`: the totals and the events of a period
timeline.py         the events as a Chrome trace and an HTML page (timeline.html)
"""

"""Where a loader's time goes: recorded per stage, summed up as the bottleneck, shown as a timeline.

bottleneck.py  `Stats`, the totals of a loader: its bottleneck in one line, and a table
recorder.py    `Recorder` and `Clock`: threads report their stages; `CudaEvents`: times of the GPU
timeline.py    `Profile`: the totals and the events of a period, as a Chrome trace
"""

"""Where the time of a loader goes: recorded per stage, summed up as the bottleneck, shown as a timeline."""

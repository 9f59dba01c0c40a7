"""cuaug beside torchvision itself: pixels, draws, targets and presets. `make test-torchvision` runs these tests."""

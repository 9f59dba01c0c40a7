"""The text of docs/parity.md, around the tables that parity.py makes."""

from __future__ import annotations

PAGE = """# Accuracy against other libraries

cuaug's results on photos equal those of Pillow, OpenCV, torch and torchvision's formulas within the tolerances below.
Errors are in uint8 levels: the largest error, and the mean over all values. `python -m tests.tools.parity --out
docs/parity.md` writes this page; `tests/documents/test_parity.py` computes the tables again and fails if an error
exceeds its tolerance. `make test-torchvision` compares pixels, draws, targets and presets with torchvision 0.29.1.

## Functions against other libraries

The input of `cuaug.functional` is three photos of 200 x 200, 133 x 181 and 97 x 240 pixels; "floats" means the photo
as float32 in [0, 1]. Formulas run in NumPy float64, so rounding alone makes uint8 results differ by half a level.

| call | peer | largest | mean | tolerance | reason |
|---|---|---|---|---|---|
{functions}
`gaussian_noise` is random; the next table compares it as `GaussianNoise`.

## Transforms against formulas

Each transform runs on six photos of 40 x 48 pixels with several arguments (`tests/support/transforms/cases.py`; batch
transforms and targets: `tests/tools/batch_cases.py`). `tests/references` computes the expected result in float64 from
the drawn parameters and the same random words for noise. The peer of `JPEG` is Pillow.

The tolerance is 0 for whole pixels and whole levels, and half a level of rounding otherwise. `AugMix` rounds twice, at
the end of its chains and after the mean. `Normalize` and `ToDtype` give floats, with float32's precision.

`Compose`, `MultiView`, `RandomApply`, `RandomChoice`, `RandomOrder` and `SomeOf` only run other transforms, `Lambda`
runs a user's function, and `SanitizeBoundingBoxes` changes no pixel.

| transform | largest | mean | tolerance |
|---|---|---|---|
{transforms}
## Deliberate differences from torchvision

cuaug does not round pixels between operations, and two resizes are one interpolation. torchvision makes whole uint8
levels after each transform, and after each change of `ColorJitter`: it rounds after geometry and blurs, and truncates
after most color changes. The table shows the distance, by torchvision's formulas, on the three photos.

| chain | here | largest | mean |
|---|---|---|---|
{differences}
Other differences:

| feature | here | torchvision |
|---|---|---|
| batches | each image has its own draws | one draw per batch |
| `Normalize` of uint8 | scales to [0, 1] first | refuses |
| `ToDtype(torch.uint8, scale=True)` | rounds v * 255 | truncates v * 255.999: a quarter of values differ by a level |
| `ToDtype(torch.uint8)` | rounds and saturates: 2.6 becomes 3 | truncates: 2.6 becomes 2 |
| `adjust_contrast`, `adjust_saturation` of uint8 | blend with the exact gray | truncate gray and result (below) |
| `RandomEqualize` of floats and uint16 | nearest of 256 levels; white of uint16: 65,535 | the level below; 65,280 |
| `TrivialAugmentWide`, middle one of 31 shifts | 16 pixels | 15: float32 has 15.999999 |
| `Solarize` of a policy, threshold at a whole level | inverts that level | may not: its threshold may be 1e-5 higher |
| `RandomRotation(expand=True)` | rotates about the image center | rotates about `center`, which may cut the image |
| `functional.crop` left of or above the whole image | 0, of the size asked for | a larger image |
| "nearest" resizing | OpenCV's pixels | tensors: float32 scale (below); PIL: "nearest-exact" |
| "nearest-exact", where a center lies between two pixels | the second pixel | either, by rounding |
| "box", "hamming" of tensors | as of PIL images | refuses |
| `antialias=None` | True | True for PIL images, False for tensors |
| `ElasticTransform` | noise of the same deviation and correlation; `sigma` from 1 | a filter that ends at 4 sigma |
| `RandomErasing` in images of a few pixels | draws again if a rectangle is empty | erases nothing |
| `RandomErasing(value="random")` of uint8 | noise around mid-gray | a standard normal, cast to uint8 |
| `RandomIoUCrop` | after 50 options the image is unchanged | no limit |
| keypoints | from the corner of the first pixel, like boxes | flips and `ElasticTransform`: from its center (below) |
| integer boxes and keypoints | rounded to nearest at the chain's end | truncated by each `Resize` |
| boxes beyond the image | clipped on input | unchanged; unless clamped, `SanitizeBoundingBoxes` drops them |
| `MixUp`, `CutMix` | mix with the next sample; `MixUp` takes uint8 too | mix with the previous sample of the batch |
| `CopyPaste` boxes | end after the last pixel of the mask | reference scripts: end at it |
| `CopyPaste(blending=True)` | a soft edge | reference scripts: a hard edge, two pixels wider |
| `labels_getter` of `SanitizeBoundingBoxes` | known fields such as `area` follow, too | other fields keep all rows |
| `labels_getter` of `MixUp`, `CutMix` | none: the label itself is mixed | an argument |
| `fill` without a dict | images only; class masks use `mask_fill`, instance masks 0 | masks too |
| masks' value in a `fill` dict | one for the whole chain | per transform |
| `AugMix` of uint8 | rounds the mean | truncates it: darker by half a level on average |

- Contrast and saturation: torchvision's truncated gray is half a level lower on average. That moves results by half of
  |factor - 1| levels, by 0.95 for a factor of 2.9.
- "nearest": where a coordinate is a whole number, torch's float32 scale may select the previous pixel, in one row of
  480 resized to 224.
- Bicubic resizing of uint8: torchvision, for tensors too, and Pillow saturate and round after each of the two passes.
  On ten photos of up to 500 pixels results differ by up to 5 levels at 0.45 times the size (mean 0.13) and by up to 10
  at 1.7 times (0.16), by more than one level in one value of ten thousand. On uniform noise, which overshoots most, by
  up to 3 (0.14) and 24 (0.27; one value of a hundred by more than one level). Floats differ by 0.01, bilinear by 1.
- Bicubic warps of PIL images: Pillow's cubic has a = -1; here, in torch and in OpenCV it is -0.75. Up to 26 levels on
  colored waves under noise.
- Keypoints: a flip moves `KeyPoints` at x to width - 1 - x in torchvision, to width - x here.

## torchvision's own tests

torchvision's `test_transforms_v2.py` (of November 2025), run with cuaug's classes and functions in place of
torchvision's. Tests of its kernels (such as `resize_image`), signatures, TorchScript and `make_params` are left out.
torchvision 0.29.1 passes 4,548 tests, of which 2,841 pass here. The other 1,707, by reason:

| failures | the tests |
|---|---|
| 636 | read torchvision's private methods, its parameters or the identity of functions |
| 253 | give one sample several images and clips under any names: [refused names](targets.md#refused-names) |
| 243 | have rotated boxes, such as XYWHR |
| 124 | expect the words or the kind of torchvision's errors and warnings |
| 115 | use `ToTensor`, `ConvertImageDtype`, `LinearTransformation`, `SetClampingMode` or `clamping_mode=None` |
| 82 | convert images to or from float64 and integers other than uint8 |
| 59 | put transforms derived from torchvision's `Transform` into a chain, or `Lambda` into `RandomApply` |
| 48 | give a batch of one image with the target of an image, or nested samples to `MixUp` |
| 33 | expect other pixels: a level of rounding, bicubic saturation, uint16 without scaling (below) |
| 29 | have integer boxes or keypoints, rounded here and truncated there; or `CenterCrop` and flips, see below |
| 21 | expect the same object from `Resize` to the same size |
| 18 | convert boxes to another dtype with `ToDtype` |
| 17 | expect a tuple from `FiveCrop` and `TenCrop`, tv_tensors from `ToImage`, or the argument names of `erase` |
| 16 | rotate about a `center` with `expand=True` |
| 13 | call `Lambda` on numbers and strings |

`ToDtype(torch.float32)` without `scale` gives uint16 images in [0, 1] here, and up to 65,535 there. `CenterCrop` to a
size that is larger by an odd number moves boxes with the image here; torchvision's may be a pixel off it. Flipped
keypoints are a pixel apart, see above.
"""

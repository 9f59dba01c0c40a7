"""`DecoderPaths`: which of nvImageCodec's JPEG decoders a GPU uses, and how.

nvImageCodec 0.9 has three for JPEG: `nvjpeg_hw_decoder` (the hardware engine), `nvjpeg_cuda_decoder` (CUDA kernels; the
Huffman codes are read on the CPU or on the GPU) and a lossless one. `benchmarks/gpu_decode.py` measures them.
"""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["DecoderPaths"]


@dataclass(frozen=True)
class DecoderPaths:
    """How one decoder splits and decodes the JPEGs of a batch.

    Attributes:
        fancy_upsampling: interpolate chroma, as libjpeg does.
        load_hint: share of JPEGs for the engine, from 0 to 1; CUDA kernels decode the rest. 0 turns the engine off.
    """

    fancy_upsampling: bool = True
    load_hint: float = 1.0

    @property
    def options(self) -> str:
        """The options of nvImageCodec's `Decoder`."""
        return f":fancy_upsampling={int(self.fancy_upsampling)}"

    @property
    def jpeg_backends(self) -> list[tuple[str, float]]:
        """(backend kind, load hint) for JPEGs: with CPU_ONLY, a JPEG that fails would silently go to the CPU."""
        engine = [("HW_GPU_ONLY", self.load_hint)] if self.load_hint > 0 else []
        return [*engine, ("GPU_ONLY", 1.0), ("HYBRID_CPU_GPU", 1.0)]

    @property
    def other_backends(self) -> list[tuple[str, float]]:
        """(backend kind, load hint) for PNG and WebP, which the CPU decodes.

        With CPU_ONLY alone, nvImageCodec would take the output for host memory.
        """
        return [("GPU_ONLY", 1.0), ("CPU_ONLY", 1.0)]

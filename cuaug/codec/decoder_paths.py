"""`DecoderPaths`: which of nvImageCodec's JPEG decoders a GPU uses, and how.

nvImageCodec 0.9 has three for JPEG: `nvjpeg_hw_decoder` (the hardware engine), `nvjpeg_cuda_decoder` (CUDA kernels; the
Huffman codes are read on the CPU or on the GPU) and a lossless one. `benchmarks/gpu_decode.py` measures the choices.
"""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["DecoderPaths"]


@dataclass(frozen=True)
class DecoderPaths:
    """How one decoder splits and decodes the JPEGs of a batch.

    Attributes:
        legacy_batch: the engine decodes its share by one call. Otherwise nvImageCodec decides: GPUs with several
            engines decode image by image if a batch of 13 or more mixes chroma subsamplings. A JPEG that fails in the
            one call fails all of the engine's share, which CUDA kernels then decode, with other rounding.
        hybrid_threshold: CUDA kernels read the Huffman codes of images with more pixels on the GPU, of others on the
            CPU. None: nvImageCodec's 1,000,000.
        cuda_streams: CUDA streams for the kernels, at most as many as CPU threads. None: nvImageCodec's choice.
        fancy_upsampling: interpolate chroma, as libjpeg does.
        load_hint: share of JPEGs for the engine, from 0 to 1; CUDA kernels decode the rest. 0 turns the engine off.
    """

    legacy_batch: bool = False
    hybrid_threshold: int | None = None
    cuda_streams: int | None = None
    fancy_upsampling: bool = True
    load_hint: float = 1.0

    @property
    def options(self) -> str:
        """The options of nvImageCodec's `Decoder`."""
        options = [f":fancy_upsampling={int(self.fancy_upsampling)}"]
        if self.legacy_batch:
            options.append("nvjpeg_hw_decoder:force_legacy_batch=1")
        if self.hybrid_threshold is not None:
            options.append(f"nvjpeg_cuda_decoder:hybrid_huffman_threshold={self.hybrid_threshold}")
        if self.cuda_streams is not None:
            options.append(f":num_cuda_streams={self.cuda_streams}")
        return " ".join(options)

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

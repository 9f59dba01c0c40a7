"""Videos: chosen frames, decoded on the CPU or by a GPU's video engine.

decoder.py      `VideoDecoder`: decodes chosen frames of a video, and no more than they need
video_index.py  `VideoIndex`: when each frame of a video is shown, and where decoding may begin
packets.py      which streams hold one frame in each packet, and the NAL units of packets
nvdec.py        `NvdecDecoder`: decodes chosen frames on a GPU's video engine, with PyNvVideoCodec
yuv.py          converts parts of decoded video frames to RGB
"""

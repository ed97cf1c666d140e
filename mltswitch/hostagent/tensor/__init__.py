"""Tensors as bytes, and how they are cut into packets of whole elements."""

from mltswitch.hostagent.tensor.bitmap import (
    bitmap_bytes,
    decode_bitmap,
    encode_bitmap,
    missing_elements,
    zero_missing,
)
from mltswitch.hostagent.tensor.elements import refuse_big_endian, view_of
from mltswitch.hostagent.tensor.layout import MAXIMUM_PACKETS, PacketLayout
from mltswitch.hostagent.tensor.rows import PacketRows, packet_rows
from mltswitch.hostagent.tensor.view import TensorView

__all__ = [
    "MAXIMUM_PACKETS",
    "PacketLayout",
    "PacketRows",
    "TensorView",
    "bitmap_bytes",
    "decode_bitmap",
    "encode_bitmap",
    "missing_elements",
    "packet_rows",
    "refuse_big_endian",
    "view_of",
    "zero_missing",
]

"""How are numbers stored? FP8 and FP4 with shared scales, their packing, and rows of bytes.

Plain torch on any device; the tables and rules in these modules are the specification that kernels
are tested against. ``block_quantise`` states the rules for NaN and infinities.
"""

from deepinfer_core.numeric.bf16_parts import bf16_parts
from deepinfer_core.numeric.block_quantise import (
    dequantise_fp4_e4m3x16,
    dequantise_fp8_32x32,
    dequantise_mxfp4,
    dequantise_mxfp8,
    quantise_fp4_e4m3x16,
    quantise_fp8_32x32,
    quantise_mxfp4,
    quantise_mxfp8,
)
from deepinfer_core.numeric.formats import FORMATS, NumberFormat, number_format
from deepinfer_core.numeric.quant_tensor import QuantTensor, fake_quantise, quantise
from deepinfer_core.numeric.rows import (
    decode_parts,
    decode_rows,
    encode_parts,
    encode_rows,
    row_bytes,
)

__all__ = [
    "FORMATS",
    "NumberFormat",
    "QuantTensor",
    "bf16_parts",
    "decode_parts",
    "decode_rows",
    "dequantise_fp4_e4m3x16",
    "dequantise_fp8_32x32",
    "dequantise_mxfp4",
    "dequantise_mxfp8",
    "encode_parts",
    "encode_rows",
    "fake_quantise",
    "number_format",
    "quantise",
    "quantise_fp4_e4m3x16",
    "quantise_fp8_32x32",
    "quantise_mxfp4",
    "quantise_mxfp8",
    "row_bytes",
]

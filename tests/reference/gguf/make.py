"""Writes reference data with the Python package `gguf`, as a second opinion on the format: a small file with values and tensors
of every kind, and the decoded blocks of every type. Run by hand; the results are committed.

    pip install gguf==0.19.0
    python tests/reference/gguf/make.py
"""

import base64
import json
from pathlib import Path

import numpy as np
from gguf import GGML_QUANT_SIZES, GGMLQuantizationType, GGUFValueType, GGUFWriter
from gguf.quants import dequantize

HERE = Path(__file__).parent
TYPES = ["F32", "F16", "BF16", "Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0", "Q4_K", "Q5_K", "Q6_K", "Q2_K", "Q3_K", "IQ4_NL", "IQ4_XS", "MXFP4"]
TYPES += ["IQ2_XXS", "IQ2_XS", "IQ2_S", "IQ3_XXS", "IQ3_S", "IQ1_S", "IQ1_M", "NVFP4"]
# Offsets of a block's f16 scales.
SCALES = {
    **{"Q4_0": [0], "Q4_1": [0, 2], "Q5_0": [0], "Q5_1": [0, 2], "Q8_0": [0], "Q4_K": [0, 2], "Q5_K": [0, 2], "Q6_K": [208]},
    **{"Q2_K": [80, 82], "Q3_K": [108], "IQ4_NL": [0], "IQ4_XS": [0], "MXFP4": []},
    **{"IQ2_XXS": [0], "IQ2_XS": [0], "IQ2_S": [0], "IQ3_XXS": [0], "IQ3_S": [0], "IQ1_S": [0], "IQ1_M": [], "NVFP4": []},
}


def blocks(name: str, random: np.random.Generator, count: int) -> np.ndarray:
    """Makes blocks of random bits with finite scales."""
    kind = GGMLQuantizationType[name]
    block, size = GGML_QUANT_SIZES[kind]
    if block == 1:
        values = random.standard_normal(32 * count).astype(np.float32)
        if name == "F32":
            return values.view(np.uint8)
        halves = values.astype(np.float16) if name == "F16" else (values.view(np.uint32) >> 16).astype(np.uint16)
        return halves.view(np.uint8)
    data = random.integers(0, 256, (count, size), dtype=np.uint8)
    if name == "MXFP4":
        data[:, 0] = random.integers(110, 135, count)
    if name == "IQ1_M":  # keeps the exponent in the upper nibble of its last word finite
        data[:, 55] &= 0xBF
    for at in SCALES[name]:
        data[:, at : at + 2] = random.standard_normal(count).astype(np.float16).view(np.uint8).reshape(count, 2)
    return data.reshape(-1)


def main() -> None:
    random = np.random.default_rng(1)
    writer = GGUFWriter(HERE / "second-opinion.gguf", "qwen3")
    writer.add_name("Second opinion")
    writer.add_uint8("a.u8", 200)
    writer.add_int8("a.i8", -100)
    writer.add_uint16("a.u16", 60000)
    writer.add_int16("a.i16", -30000)
    writer.add_uint32("a.u32", 4_000_000_000)
    writer.add_int32("a.i32", -2_000_000_000)
    writer.add_uint64("a.u64", 1 << 40)
    writer.add_int64("a.i64", -(1 << 40))
    writer.add_float32("a.f32", 0.25)
    writer.add_float64("a.f64", 1e100)
    writer.add_bool("a.bool", True)
    writer.add_string("a.text", "żółć 小鳥")
    writer.add_array("a.texts", ["one", "", "três"])
    writer.add_array("a.numbers", [1, -2, 3])
    writer.add_array("a.reals", [0.5, -1.5])
    writer.add_key_value("a.bytes", [1, 255], GGUFValueType.ARRAY, sub_type=GGUFValueType.UINT8)
    expected = {}
    for name in TYPES:
        kind = GGMLQuantizationType[name]
        block, size = GGML_QUANT_SIZES[kind]
        data = blocks(name, random, 2)
        numbers = np.ascontiguousarray(dequantize(data.reshape(2, -1), kind), dtype=np.float32)
        writer.add_tensor(f"{name}.weight", data.reshape(2, -1), raw_dtype=kind, raw_shape=None)
        expected[name] = base64.b64encode(numbers.tobytes()).decode()
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    (HERE / "numbers.json").write_text(json.dumps(expected, indent=1) + "\n")


if __name__ == "__main__":
    main()

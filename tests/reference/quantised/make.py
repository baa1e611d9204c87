"""Writes matrices that other programs quantised, and what they mean, as a second opinion on quantised folders: the tensors as the
packages write them, and the products of the numbers that the packages read from these. Run by hand; the result is committed.

    pip install torch transformers safetensors bitsandbytes==0.50.2 compressed-tensors==0.20.0 auto-round==0.16.1
    python tests/reference/quantised/make.py
"""

import base64
import json
from pathlib import Path

import torch
from auto_round_extension.torch import qlinear_torch, qlinear_torch_zp
from bitsandbytes import functional
from compressed_tensors.compressors.nvfp4.base import NVFP4PackedCompressor
from compressed_tensors.compressors.nvfp4.helpers import unpack_fp4_from_uint8
from compressed_tensors.quantization import QuantizationArgs, QuantizationScheme
from compressed_tensors.quantization.lifecycle.forward import dequantize

ROWS, COLS = 16, 256
DTYPES = {
    **{torch.uint8: "U8", torch.int8: "I8", torch.int32: "I32", torch.float32: "F32", torch.float16: "F16"},
    **{torch.float8_e4m3fn: "F8_E4M3"},
}
# Rows that the matrices multiply: small multiples of 1/16, divided by their root mean square.
INPUTS = torch.tensor([[((t * 131 + k * 17) % 29 - 14) / 16 for k in range(COLS)] for t in range(8)], dtype=torch.float64)


def weights(rows: int = ROWS) -> torch.Tensor:
    torch.manual_seed(3)
    return torch.randn(rows, COLS) * 0.05


def case(config: dict, tensors: dict, meant: torch.Tensor) -> dict:
    normed = INPUTS / (INPUTS.square().mean(dim=1, keepdim=True) + 1e-6).sqrt()
    products = normed @ meant.double().T
    stored = {
        name: {
            "dtype": DTYPES[tensor.dtype],
            "shape": list(tensor.shape),
            "data": base64.b64encode(tensor.contiguous().reshape(-1).view(torch.uint8).numpy().tobytes()).decode(),
        }
        for name, tensor in tensors.items()
    }
    return {"config": config, "tensors": stored, "products": [[round(x, 7) for x in row] for row in products.tolist()]}


def four_bits(kind: str, nested: bool) -> dict:
    packed, state = functional.quantize_4bit(weights(), quant_type=kind, compress_statistics=nested, blocksize=64)
    parts = {f"weight.{name}": tensor for name, tensor in state.as_dict(packed=True).items()}
    config = {"quant_method": "bitsandbytes", "load_in_4bit": True, "load_in_8bit": False, "bnb_4bit_quant_type": kind}
    config |= {"bnb_4bit_use_double_quant": nested, "bnb_4bit_quant_storage": "uint8"}
    return case(config, {"weight": packed, **parts}, functional.dequantize_4bit(packed, state))


def eight_bits() -> dict:
    integers, scales, _ = functional.int8_vectorwise_quant(weights().half())
    meant = functional.int8_vectorwise_dequant(integers, scales)
    tensors = {"weight": integers, "SCB": scales, "weight_format": torch.tensor(0, dtype=torch.uint8).reshape(1)}
    return case({"quant_method": "bitsandbytes", "load_in_8bit": True, "load_in_4bit": False}, tensors, meant)


def nvfp4() -> tuple[dict, dict]:
    """The same numbers as compressed-tensors and as ModelOpt store them: the global scale divides or multiplies."""
    weight = weights()
    args = QuantizationArgs(num_bits=4, type="float", strategy="tensor_group", group_size=16, symmetric=True)
    scheme = QuantizationScheme(targets=["Linear"], weights=args)
    largest = weight.reshape(ROWS, -1, 16).abs().amax(dim=2)
    divisor = (448 * 6 / weight.abs().max()).reshape(1)
    scale = (largest / 6 * divisor).to(torch.float8_e4m3fn).float()
    stored = NVFP4PackedCompressor.compress(
        {"weight": weight, "weight_scale": scale, "weight_global_scale": divisor}, scheme
    )
    integers = unpack_fp4_from_uint8(stored["weight_packed"], ROWS, COLS, dtype=torch.float32)
    scale = stored["weight_scale"].float()
    meant = dequantize(integers, scale, args=args, global_scale=divisor, dtype=torch.float32)
    shown = {"num_bits": 4, "type": "float", "strategy": "tensor_group", "group_size": 16, "symmetric": True}
    groups = {"group_0": {"targets": ["Linear"], "weights": shown}}
    compressed = {"quant_method": "compressed-tensors", "format": "nvfp4-pack-quantized", "config_groups": groups}
    tensors = {"weight": stored["weight_packed"], "weight_scale": stored["weight_scale"]}
    tensors |= {"weight_scale_2": (1 / divisor).reshape(())}
    modelopt = {"quant_method": "modelopt", "quant_algo": "NVFP4", "group_size": 16, "ignore": []}
    return case(compressed, stored, meant), case(modelopt, tensors, meant)


def auto_round(module, packing: str, symmetric: bool) -> dict:
    rows = 32  # zeros are packed 32 rows at a time
    weight = weights(rows)
    linear = torch.nn.Linear(COLS, rows, bias=False)
    grouped = weight.reshape(rows, -1, 64)
    if symmetric:
        scale, zero = grouped.abs().amax(dim=2) / 7, torch.full((rows, COLS // 64), 8.0)
    else:
        low, high = grouped.amin(dim=2), grouped.amax(dim=2)
        scale = (high - low) / 15
        zero = (-low / scale).round().clamp(1, 15)
    scale = scale.half().float()
    q = (grouped / scale[..., None] + zero[..., None]).round().clamp(0, 15)
    meant = ((q - zero[..., None]) * scale[..., None]).reshape(rows, COLS)
    linear.weight.data = meant
    packed = module.QuantLinear(4, 64, COLS, rows, False)
    packed.device = "cpu"  # of which `pack` reads nothing else
    packed.pack(linear, scale, zero, None, "cpu")
    tensors = {"qweight": packed.qweight, "qzeros": packed.qzeros, "scales": packed.scales}
    config = {"quant_method": "auto-round", "packing_format": packing, "bits": 4, "group_size": 64, "sym": symmetric}
    return case(config | {"data_type": "int", "autoround_version": "0.16.1"}, tensors, meant)


def main() -> None:
    compressed, modelopt = nvfp4()
    cases = {
        **{f"{kind}{', nested scales' if nested else ''}": four_bits(kind, nested) for kind in ("nf4", "fp4") for nested in (False, True)},
        "int8": eight_bits(),
        "compressed-tensors, NVFP4": compressed,
        "ModelOpt, NVFP4": modelopt,
        "AutoRound, zeros less 1": auto_round(qlinear_torch_zp, "auto_round:auto_gptq", False),
        "AutoRound, zeros as they are": auto_round(qlinear_torch, "auto_round", False),
        "AutoRound, symmetric": auto_round(qlinear_torch, "auto_round", True),
    }
    path = Path(__file__).parent / "matrices.json"
    path.write_text(json.dumps(cases, separators=(",", ":")) + "\n")
    print(path.stat().st_size, "bytes")


if __name__ == "__main__":
    main()

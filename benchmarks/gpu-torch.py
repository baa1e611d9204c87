"""Times of PyTorch on this GPU for the matrix products of bench_kernels.cpp, and of transformers for an 8B model.

    python3 benchmarks/gpu-torch.py                           products
    python3 benchmarks/gpu-torch.py <folder of Llama-3.1-8B>  decoding

Optional: benchmarks/gpu.sh runs it if torch is installed. Weights rotate over more memory than the L2 cache holds.
"""

import sys
import time

import torch

PRODUCTS = {"qkv": (6144, 4096), "o": (4096, 4096), "gate, up": (28672, 4096), "down": (4096, 14336), "vocabulary": (128256, 4096)}
FAR_MORE_THAN_CACHE = 400 << 20


def seconds_of(run, count):
    """Returns the seconds of one of `count` calls of run(i), recorded as a graph and launched for at least 20 ms; the fastest of eight."""
    for i in range(3):
        run(i)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for i in range(count):
            run(i)
    def took(launches):
        torch.cuda.synchronize()
        start = time.perf_counter()
        for _ in range(launches):
            graph.replay()
        torch.cuda.synchronize()
        return time.perf_counter() - start

    took(1)
    launches = int(0.02 / took(1)) + 1
    return min(took(launches) for _ in range(8)) / launches / count


def products():
    print("| Product | Tokens | µs | TB/s | TFLOP/s |")
    print("|---|---|---|---|---|")
    for name, (n, k) in PRODUCTS.items():
        copies = FAR_MORE_THAN_CACHE // (n * k * 2) + 1
        weights = torch.randn(copies, n, k, dtype=torch.bfloat16, device="cuda")
        for tokens in (1, 8, 16, 32, 64, 128, 1024, 4096):
            x = torch.randn(tokens, k, dtype=torch.bfloat16, device="cuda")
            out = torch.empty(tokens, n, dtype=torch.bfloat16, device="cuda")
            count = 40 if tokens <= 64 else 10
            took = seconds_of(lambda i: torch.mm(x, weights[i % copies].T, out=out), count)
            moved = 2 * (n * k + tokens * (n + k))
            print(f"| {name} | {tokens} | {took * 1e6:.1f} | {moved / took * 1e-12:.2f} | {2 * tokens * n * k / took * 1e-12:.0f} |")
        del weights


def decoding(folder):
    from transformers import AutoModelForCausalLM

    # Versions differ in the name of the type argument.
    model = AutoModelForCausalLM.from_pretrained(folder).to("cuda", torch.bfloat16)
    print("\n| Sequences | ms per token, transformers |")
    print("|---|---|")
    for sequences in (1, 32, 128):
        prompt = torch.randint(1000, 100000, (sequences, 128), device="cuda")
        options = {"do_sample": False, "pad_token_id": 0}
        model.generate(prompt, min_new_tokens=4, max_new_tokens=4, **options)
        torch.cuda.synchronize()
        start = time.perf_counter()
        model.generate(prompt, min_new_tokens=64, max_new_tokens=64, **options)
        torch.cuda.synchronize()
        print(f"| {sequences} | {(time.perf_counter() - start) / 64 * 1e3:.2f} |")


print(f"PyTorch {torch.__version__} on {torch.cuda.get_device_name()}.\n")
if len(sys.argv) > 1:
    decoding(sys.argv[1])
else:
    products()

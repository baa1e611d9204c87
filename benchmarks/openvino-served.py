"""OpenVINO GenAI's continuous batching on a GGUF file: prompts, streams and clients, to compare with cpu.ts.

    pip install openvino-genai==2026.4.0 openvino==2026.4.0
    ONEDNN_MAX_CPU_ISA=AVX2 python benchmarks/openvino-served.py <0.5B-Q8_0.gguf> [--threads 2] [--rounds 3]
      [--only "prefill 512"] [--only "32 streams"]

Rows are those of cpu.ts: a prompt of 512 tokens; streams of 1, 8, 32 and 64 after prompts of 16 tokens; 8 clients
and 32 clients that send a prompt at once. Prompts are random tokens, nothing is cached. Prints the median over rounds.
ONEDNN_MAX_CPU_ISA keeps the kernels to an instruction set.
"""

import argparse
import json
import random
import statistics
import time

import numpy
import openvino
import openvino_genai as genai

PROMPT_TOKENS_OF_STREAMS = 16
VOCABULARY = 4000  # tokens that every vocabulary has


class Engine:
    def __init__(self, path, threads, step_tokens, properties):
        settings = genai.SchedulerConfig()
        settings.max_num_batched_tokens = step_tokens
        settings.max_num_seqs = 256
        settings.cache_size = 4  # GiB
        settings.dynamic_split_fuse = True  # chunked prefill
        settings.enable_prefix_caching = False
        properties = {"INFERENCE_NUM_THREADS": threads, **json.loads(properties)}
        self.pipeline = genai.ContinuousBatchingPipeline(path, settings, "CPU", properties)
        self.random = random.Random(1)
        self.requests = 0

    def add(self, prompt_tokens, answer_tokens):
        """Adds a request and returns its handle."""
        config = genai.GenerationConfig()
        config.max_new_tokens = answer_tokens
        config.ignore_eos = True
        config.do_sample = False
        tokens = [[self.random.randrange(100, VOCABULARY) for _ in range(prompt_tokens)]]
        self.requests += 1
        return self.pipeline.add_request(self.requests, openvino.Tensor(numpy.array(tokens, dtype=numpy.int64)), config)

    def run(self, count, prompt_tokens, answer_tokens):
        """Runs equal requests to their end. Returns the seconds to each first token, and after each step its time and
        the tokens so far."""
        start = time.perf_counter()
        came = {self.add(prompt_tokens, answer_tokens): 0 for _ in range(count)}
        first_seconds, steps = [], []
        while self.pipeline.has_non_finished_requests():
            self.pipeline.step()
            now = time.perf_counter() - start
            for handle in came:
                while handle.can_read():
                    if came[handle] == 0:
                        first_seconds.append(now)
                    came[handle] += sum(len(output.generated_ids) for output in handle.read().values())
            steps.append((now, sum(came.values())))
        if any(tokens != answer_tokens for tokens in came.values()):
            raise RuntimeError(f"answers have {sorted(set(came.values()))} tokens, not {answer_tokens}")
        return first_seconds, steps


def prefill(engine, tokens):
    first_seconds, _ = engine.run(1, tokens, 1)
    return {"tok/s": tokens / first_seconds[0]}


def streams(engine, count):
    """Counts steps after the last first token: all streams decode in them."""
    first_seconds, steps = engine.run(count, PROMPT_TOKENS_OF_STREAMS, 64)
    (begin, before), (end, after) = next(step for step in steps if step[0] >= first_seconds[-1]), steps[-1]
    return {"tok/s": (after - before) / (end - begin)}


def clients(engine, count, prompt_tokens, answer_tokens):
    first_seconds, steps = engine.run(count, prompt_tokens, answer_tokens)
    ordered = sorted(first_seconds)
    return {
        "first token p50 s": ordered[len(ordered) // 2],
        "last first token s": ordered[-1],
        "tok/s": count * answer_tokens / steps[-1][0],
    }


ROWS = {
    "prefill 512": lambda engine: prefill(engine, 512),
    "1 stream": lambda engine: streams(engine, 1),
    "8 streams": lambda engine: streams(engine, 8),
    "32 streams": lambda engine: streams(engine, 32),
    "64 streams": lambda engine: streams(engine, 64),
    "8 clients, 512 own tokens, 64 out": lambda engine: clients(engine, 8, 512, 64),
    "32 clients, 128 own tokens, 32 out": lambda engine: clients(engine, 32, 128, 32),
}

parser = argparse.ArgumentParser()
parser.add_argument("path")
parser.add_argument("--threads", type=int, default=2)
parser.add_argument("--step-tokens", type=int, default=256)
parser.add_argument("--rounds", type=int, default=3)
parser.add_argument("--properties", default="{}", help="of the device, as JSON")
parser.add_argument("--only", action="append", default=[])
options = parser.parse_args()
engine = Engine(options.path, options.threads, options.step_tokens, options.properties)
engine.run(1, 64, 8)  # compiles kernels
for name, row in ROWS.items():
    if options.only and not any(text in name for text in options.only):
        continue
    rounds = [row(engine) for _ in range(options.rounds)]
    medians = {what: statistics.median(round[what] for round in rounds) for what in rounds[0]}
    print(name, ", ".join(f"{what} {value:.4g}" for what, value in medians.items()), flush=True)

/** Options of vLLM, SGLang and llama.cpp's server, with their equivalents here. */

const model = "the model is an argument, without an option";
const always = "that is always on";
const template = "that is told from the model's own chat template";
const devices = "--device names GPUs or engines, one on each: cuda:0,1 or cpu:2";
const scaling = "--rope-scaling takes JSON with rope_type, factor and original_max_position_embeddings";

const sameHere: Readonly<Record<string, string>> = {
  "-m": model,
  "--model-path": model,
  "-hf": model,
  "--hf-repo": model,
  "-c": "--max-model-len",
  "--ctx-size": "--max-model-len",
  "--context-length": "--max-model-len",
  "-t": "--threads",
  "-np": "--sequences-max",
  "--parallel": "--sequences-max",
  "--max-num-seqs": "--sequences-max",
  "--max-running-requests": "--sequences-max",
  "-b": "--step-tokens",
  "--batch-size": "--step-tokens",
  "--max-num-batched-tokens": "--step-tokens",
  "--chunked-prefill-size": "--step-tokens",
  "-a": "--served-model-name",
  "--alias": "--served-model-name",
  "--gpu-memory-utilization": "--kv-cache-gib",
  "--mem-fraction-static": "--kv-cache-gib",
  "--kv-cache-dtype": "--kv",
  "--cache-type-k": "--kv",
  "--cache-type-v": "--kv",
  "--quantization": "--quant",
  "-ngl": devices,
  "--n-gpu-layers": devices,
  "--gpu-layers": devices,
  "-tp": devices,
  "--tp": devices,
  "--tp-size": devices,
  "--tensor-parallel-size": devices,
  "--dp": devices,
  "--data-parallel-size": devices,
  "--rope-scale": scaling,
  "--yarn-orig-ctx": scaling,
  "--rope-freq-scale": scaling,
  "--chat-template-file": "--chat-template",
  "--default-chat-template-kwargs": "--chat-template-kwargs",
  "--enable-prefix-caching": always,
  "--enable-chunked-prefill": always,
  "--cont-batching": always,
  "--jinja": always,
  "--metrics": always,
  "--enable-auto-tool-choice": template,
  "--tool-call-parser": template,
  "--reasoning-parser": template,
  "--reasoning-format": template,
  "--trust-remote-code": "code that comes with a model is never run",
};

/** Commander's error message; for another server's option, the message with the equivalent here. */
export function withOptionHere(message: string): string {
  const option = /^error: unknown option '([^'=]+)/.exec(message)?.[1] ?? "";
  const here = Object.hasOwn(sameHere, option) ? sameHere[option]! : null;
  if (here === null) return message;
  const isOption = here.startsWith("--") && !here.includes(" ");
  return `error: unknown option '${option}': ${isOption ? `here it is ${here}` : here}\n`;
}

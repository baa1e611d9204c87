/** Commands and options of Ollama, vLLM, SGLang and llama.cpp's server, with their equivalents here. */

const model = "the model is an argument, without an option";
const always = "that is always on";
const template = "that is told from the model's own chat template";
const devices = "--device names GPUs or engines, one on each: cuda:0,1 or cpu:2";
const scaling = "--rope-scaling takes JSON with rope_type, factor and original_max_position_embeddings";

const embeds = "the routes are always there, and answer if the model can";
const adapters =
  "all adapters of --lora are in memory, whatever their rank, and one step may compute all of them";
const sampling = "each request has its own; a model's table in the file of --config has `sampling`";
const proxy = "a proxy in front of the server has the certificate";

const optionsHere: Readonly<Record<string, string>> = {
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
  "-fa": always,
  "--flash-attn": always,
  "--slots": always,
  "--embedding": embeds,
  "--embeddings": embeds,
  "--reranking": embeds,
  "-md": "--draft-model",
  "--model-draft": "--draft-model",
  "--speculative-config": "--draft-model",
  "--speculative-draft-model-path": "--draft-model",
  "--enable-lora": "--lora name=path is enough",
  "--lora-modules": "--lora",
  "--lora-paths": "--lora",
  "--lora-scaled": "--lora takes an adapter with its own scale",
  "--max-loras": adapters,
  "--max-lora-rank": adapters,
  "--max-loras-per-batch": adapters,
  "--max-cpu-loras": adapters,
  "--mmproj": "models read text only",
  "--temp": sampling,
  "--seed": "each request has its own",
  "--enable-log-requests": "--log-requests",
  "--models-dir": "--models",
  "--revision": "the model's name takes it, as in Qwen/Qwen3-0.6B@main",
  "--download-dir": "the variable HF_HUB_CACHE names the folder",
  "--ssl-keyfile": proxy,
  "--ssl-certfile": proxy,
  "--ssl-key-file": proxy,
  "--ssl-cert-file": proxy,
  "--trust-remote-code": "code that comes with a model is never run",
};

const commandsHere: Readonly<Record<string, string>> = {
  run: "chat",
  complete: "chat",
  list: "models",
  ls: "models",
  rm: "models rm",
  ps: "top",
  show: "doctor",
  "collect-env": "doctor",
  "run-batch": "batch",
  version: "--version",
};

/** Commander's error message; for another server's command or option, the message with the equivalent here. */
export function withNameHere(message: string): string {
  const [, kind, name = ""] = /^error: unknown (command|option) '([^'=]+)/.exec(message) ?? [];
  const known = kind === "command" ? commandsHere : optionsHere;
  if (!Object.hasOwn(known, name)) return message;
  const here = known[name]!;
  const isName = here.startsWith("--") && !here.includes(" ");
  const shown = kind === "command" ? `here it is bunting ${here}` : isName ? `here it is ${here}` : here;
  return `error: unknown ${kind} '${name}': ${shown}\n`;
}

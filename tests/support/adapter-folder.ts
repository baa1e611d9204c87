import { mkdirSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { type FileTensor, writeTensors } from "./headless-folder.ts";

/** Width of the demo model, whose first query projection the adapters change. */
const HIDDEN = 256;

/** Writes a PEFT folder of an adapter for the demo model. Folders of different `scale` have different contents. */
export function writeAdapter(dir: string, { rank = 4, scale = 1, inputs = HIDDEN } = {}): string {
  mkdirSync(dir, { recursive: true });
  const config = { peft_type: "LORA", r: rank, lora_alpha: rank, target_modules: ["q_proj"] };
  writeFileSync(join(dir, "adapter_config.json"), JSON.stringify(config));
  const tensor = (shape: readonly [number, number]): FileTensor => {
    const numbers = Float32Array.from({ length: shape[0] * shape[1] }, (_, i) => scale * Math.sin(i + 1));
    return { dtype: "F32", shape, data: Buffer.from(numbers.buffer) };
  };
  const module = "base_model.model.model.layers.0.self_attn.q_proj";
  const tensors = new Map([
    [`${module}.lora_A.weight`, tensor([rank, inputs])],
    [`${module}.lora_B.weight`, tensor([HIDDEN, rank])],
  ]);
  writeTensors(join(dir, "adapter_model.safetensors"), tensors);
  return dir;
}

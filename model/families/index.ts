/** Table of all families. A new family is a file in this folder and a row here. */
import { afmoe } from "./afmoe.ts";
import { apertus, apertus15 } from "./apertus.ts";
import { arcee } from "./arcee.ts";
import { bailingMoe } from "./bailing-moe.ts";
import { bert, xlmRoberta } from "./bert.ts";
import { cohere } from "./cohere.ts";
import { cohere2 } from "./cohere2.ts";
import { deepseekV2, deepseekV3, glm4MoeLite } from "./deepseek.ts";
import { ernie, ernieMoe } from "./ernie.ts";
import { exaone } from "./exaone.ts";
import { exaone4 } from "./exaone4.ts";
import { falconH1 } from "./falcon-h1.ts";
import type { Family } from "./family.ts";
import { gemma, gemma2, gemma3, gemmaEmbedding, vaultGemma } from "./gemma.ts";
import { gemma3n } from "./gemma3n.ts";
import { gemma4, gemma4Unified } from "./gemma4.ts";
import { glm, glm4 } from "./glm4.ts";
import { glm4Moe } from "./glm4-moe.ts";
import { gptOss } from "./gpt-oss.ts";
import { granite } from "./granite.ts";
import { graniteHybrid } from "./granite-hybrid.ts";
import { graniteMoe } from "./granite-moe.ts";
import { graniteMoeSwa, graniteSwa } from "./granite-swa.ts";
import { hunyuanDense, hunyuanMoe } from "./hunyuan.ts";
import { hyperclovax } from "./hyperclovax.ts";
import { internlm2 } from "./internlm2.ts";
import { internlm3 } from "./internlm3.ts";
import { jais2 } from "./jais2.ts";
import { lfm2, lfm2Moe } from "./lfm2.ts";
import { lfm3 } from "./lfm3.ts";
import { llama } from "./llama.ts";
import { llama4 } from "./llama4.ts";
import { mellum } from "./mellum.ts";
import { minicpm } from "./minicpm.ts";
import { minimaxM2 } from "./minimax-m2.ts";
import { ministral3 } from "./ministral3.ts";
import { mistral } from "./mistral.ts";
import { mistral4 } from "./mistral4.ts";
import { mixtral } from "./mixtral.ts";
import { modernBert } from "./modern-bert.ts";
import { nemotron } from "./nemotron.ts";
import { nemotronH } from "./nemotron-h.ts";
import { nomicBert } from "./nomic-bert.ts";
import { olmo2, olmo3 } from "./olmo.ts";
import { olmoe } from "./olmoe.ts";
import { phi3 } from "./phi3.ts";
import { mimo, qwen2, qwen3 } from "./qwen.ts";
import { qwen2Vl, qwen3Vl, qwen3VlMoe } from "./qwen-vl.ts";
import { qwen2Moe } from "./qwen2-moe.ts";
import { qwen35, qwen35Moe } from "./qwen3-5.ts";
import { qwen3Moe } from "./qwen3-moe.ts";
import { qwen3Next } from "./qwen3-next.ts";
import { seedOss } from "./seed-oss.ts";
import { smollm3 } from "./smollm3.ts";
import { stablelm } from "./stablelm.ts";
import { starcoder2 } from "./starcoder2.ts";
import { youtu } from "./youtu.ts";

export const families: readonly Family[] = [
  llama,
  mistral,
  ministral3,
  qwen2,
  qwen3,
  gemma,
  gemma2,
  gemma3,
  gemma4,
  gemma4Unified,
  phi3,
  smollm3,
  granite,
  olmo2,
  olmo3,
  glm,
  glm4,
  cohere2,
  seedOss,
  qwen3Moe,
  mixtral,
  olmoe,
  graniteMoe,
  gptOss,
  internlm2,
  internlm3,
  qwen2Vl,
  qwen3Vl,
  qwen3VlMoe,
  graniteHybrid,
  exaone4,
  bert,
  xlmRoberta,
  modernBert,
  nomicBert,
  gemmaEmbedding,
  qwen2Moe,
  glm4Moe,
  bailingMoe,
  minimaxM2,
  ernie,
  ernieMoe,
  hunyuanDense,
  hunyuanMoe,
  llama4,
  starcoder2,
  apertus,
  deepseekV2,
  deepseekV3,
  glm4MoeLite,
  mistral4,
  gemma3n,
  qwen3Next,
  qwen35,
  qwen35Moe,
  mimo,
  lfm2,
  lfm2Moe,
  falconH1,
  nemotronH,
  arcee,
  afmoe,
  mellum,
  graniteSwa,
  graniteMoeSwa,
  hyperclovax,
  youtu,
  lfm3,
  cohere,
  nemotron,
  stablelm,
  jais2,
  vaultGemma,
  minicpm,
  exaone,
  apertus15,
];

/** Family of a parsed configuration; the name is always in the table. */
export function familyNamed(name: string): Family {
  return families.find((family) => family.name === name)!;
}

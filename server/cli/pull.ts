/** `bunting pull`: downloads a published model to the cache, or updates one that is there. */

import { flag, makeConfig, type Values } from "../config.ts";
import { HubError } from "../hub/hub-error.ts";
import { pullModel } from "../hub/pull.ts";
import { readModelName, unknownName } from "../hub/resolve.ts";
import { hubSettings } from "../hub/settings.ts";
import { planOf } from "./model-argument.ts";
import type { OptionList } from "./options.ts";
import { pullOutput } from "./pull-progress.ts";
import { interruption } from "./signals.ts";

export const pullSettings = Object.freeze({
  anySize: flag({ sentence: "Fetch also a model that this machine's memory cannot hold." }),
});

export const pullOptions: OptionList<typeof pullSettings> = {
  settings: pullSettings,
  headings: { anySize: "Size:" },
};

export const pullHelp = `
A name is a repository of the hub, and may have a revision and a GGUF file or
quant: Qwen/Qwen3-0.6B, Qwen/Qwen3-0.6B@main, unsloth/Qwen3-0.6B-GGUF:Q4_K_M.
Some of Ollama's names are known too: qwen3:0.6b.

Files go to the cache of Hugging Face's own clients. HF_TOKEN, HF_HOME,
HF_HUB_CACHE, HF_ENDPOINT and HF_HUB_OFFLINE mean what they mean there.`;

/** Prints the model's path; resolves to the exit code. */
export async function pull({ anySize }: Values<typeof pullSettings>, name: string): Promise<number> {
  const model = readModelName(name);
  if (model === null) throw new HubError(unknownName(name));
  const interrupted = interruption();
  const output = pullOutput();
  try {
    const plan = anySize ? null : planOf(makeConfig());
    const { signal } = interrupted;
    const path = await pullModel(model, { settings: hubSettings(), signal, events: output, plan });
    output.onEnd();
    console.log(path);
    return 0;
  } catch (error) {
    output.onEnd();
    if (!interrupted.signal.aborted) throw error;
    console.error(`Stopped. \`bunting pull ${name}\` goes on from here.`);
    return interrupted.exitCode;
  }
}

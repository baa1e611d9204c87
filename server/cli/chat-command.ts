/** `bunting chat`: connects to a running server, or starts one for this chat. */

import { makeConfig, optional, serverSettings, type Values } from "../config.ts";
import { startServer } from "../start.ts";
import { chat, conversationSettings } from "./chat.ts";
import { listModels } from "./client.ts";
import { modelPath } from "./model-argument.ts";
import type { OptionList } from "./options.ts";
import { progressLine, showLoading } from "./progress.ts";
import { apiKeySetting, targetOf } from "./target.ts";

const DEFAULT_URL = `http://${serverSettings.host.default}:${serverSettings.port.default}`;
const PROBE_MS = 1000;

/** Settings of a server started for a chat or a batch. */
const { device, threads, dtype, quant, packedWeights, lora, maxModelLen, kvCacheGib } = serverSettings;
export const startedSettings = {
  device,
  threads,
  dtype,
  quant,
  packedWeights,
  lora,
  maxModelLen,
  kvCacheGib,
};

export const chatSettings = Object.freeze({
  url: optional({
    placeholder: "url",
    defaultText: `${DEFAULT_URL} when a server runs there, else one started for this chat`,
    sentence: "The server to talk to.",
  }),
  apiKey: apiKeySetting,
  ...conversationSettings,
  ...startedSettings,
});

export const chatOptions: OptionList<typeof chatSettings> = {
  settings: chatSettings,
  headings: { url: "Server:", model: "Answers:", device: "A server that is started for this chat:" },
};

export const chatHelp = `
In a terminal, lines that are pasted are one message, and a line that ends
with \\ goes on in the next one. Piped in, each line is a message.

Exit codes:
  0    the chat was left
  1    a question was not answered, or no server can be reached
  130  left by Ctrl-C (143 by SIGTERM)`;

/** Runs the chat until the input ends; resolves to the exit code. */
export async function chatCommand(
  options: Values<typeof chatSettings>,
  model: string | null,
): Promise<number> {
  const { url, apiKey } = options;
  if (url !== null) return await chat(targetOf(url, apiKey), options);
  if (model === null && (await isServing(DEFAULT_URL, apiKey)))
    return await chat(targetOf(DEFAULT_URL, apiKey), options);

  const progress = progressLine();
  const { device, threads, dtype, quant, packedWeights, lora, maxModelLen, kvCacheGib } = options;
  const config = makeConfig({
    port: 0,
    data: "off",
    device,
    threads,
    dtype,
    quant,
    packedWeights,
    lora,
    maxModelLen,
    kvCacheGib,
  });
  const server = await startServer(config, await modelPath(model, config), {
    onPlan: () => {},
    onProgress: showLoading(progress),
  });
  progress.clear();
  try {
    return await chat({ url: server.url, apiKey: null }, options);
  } finally {
    await server.drain(0);
  }
}

async function isServing(url: string, apiKey: string | null): Promise<boolean> {
  try {
    return (await listModels({ url, apiKey }, AbortSignal.timeout(PROBE_MS))).length > 0;
  } catch {
    return false;
  }
}

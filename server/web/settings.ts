import { element } from "./dom.ts";

/** What is set for a conversation, as it was typed: what is left empty is left to the server. */
export interface ChatSettings {
  readonly system: string;
  readonly temperature: string;
  readonly tokensMax: string;
}

const system = element("system", HTMLTextAreaElement);
const temperature = element("temperature", HTMLInputElement);
const tokensMax = element("tokens-max", HTMLInputElement);

export function typedSettings(): ChatSettings {
  return { system: system.value, temperature: temperature.value, tokensMax: tokensMax.value };
}

export function showSettings(settings: ChatSettings): void {
  system.value = settings.system;
  temperature.value = settings.temperature;
  tokensMax.value = settings.tokensMax;
}

/** Calls back when a setting was changed. */
export function onSettings(changed: () => void): void {
  for (const field of [system, temperature, tokensMax]) field.addEventListener("change", changed);
}

/** What a request says of them besides its messages. */
export function sampling(): Readonly<Record<string, number>> {
  const warmth = temperature.valueAsNumber;
  const tokens = tokensMax.valueAsNumber;
  return {
    ...(Number.isNaN(warmth) ? {} : { temperature: warmth }),
    ...(Number.isNaN(tokens) ? {} : { max_tokens: tokens }),
  };
}

import { element } from "./dom.ts";

/** Settings of a conversation, as typed; the server's default applies where one is empty. */
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

/** Calls `changed` after a change of a setting. */
export function onSettings(changed: () => void): void {
  for (const field of [system, temperature, tokensMax]) field.addEventListener("change", changed);
}

/** Sampling fields of a request. */
export function sampling(): Readonly<Record<string, number>> {
  const warmth = temperature.valueAsNumber;
  const tokens = tokensMax.valueAsNumber;
  return {
    ...(Number.isNaN(warmth) ? {} : { temperature: warmth }),
    ...(Number.isNaN(tokens) ? {} : { max_tokens: tokens }),
  };
}

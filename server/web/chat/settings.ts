/** Settings of a conversation, and their conversion to request fields. */

/** Settings as typed; the server's default applies to empty ones. */
export interface ChatSettings {
  readonly model: string;
  readonly system: string;
  /** Numbers by name of the request field. */
  readonly numbers: Readonly<Record<string, string>>;
  /** Stop strings, one per line. */
  readonly stop: string;
  readonly thinking: string;
  /** JSON Schema of the response. */
  readonly schema: string;
  /** JSON list of tools in OpenAI's format. */
  readonly tools: string;
}

export const noSettings: ChatSettings = {
  model: "",
  system: "",
  numbers: {},
  stop: "",
  thinking: "",
  schema: "",
  tools: "",
};

export interface NumberField {
  readonly name: string;
  readonly label: string;
  readonly min: number;
  readonly max?: number;
  readonly isWhole?: boolean;
}

export const numberFields: readonly NumberField[] = [
  { name: "temperature", label: "Temperature", min: 0, max: 5 },
  { name: "max_tokens", label: "Most tokens in an answer", min: 1, isWhole: true },
  { name: "top_p", label: "Top p", min: 0, max: 1 },
  { name: "top_k", label: "Top k", min: 0, isWhole: true },
  { name: "min_p", label: "Min p", min: 0, max: 1 },
  { name: "repetition_penalty", label: "Repetition penalty", min: 0.01, max: 100 },
  { name: "presence_penalty", label: "Presence penalty", min: -2, max: 2 },
  { name: "frequency_penalty", label: "Frequency penalty", min: -2, max: 2 },
  { name: "seed", label: "Seed", min: -1, isWhole: true },
  { name: "min_tokens", label: "Fewest tokens in an answer", min: 0, isWhole: true },
];

/** Request fields. Throws an Error with a sentence if a setting is not valid JSON. */
export function requestFields(settings: ChatSettings): Readonly<Record<string, unknown>> {
  const { model, numbers, stop, thinking, schema, tools } = settings;
  const fields: Record<string, unknown> = {};
  if (model !== "") fields.model = model;
  for (const [name, typed] of Object.entries(numbers)) if (typed.trim() !== "") fields[name] = Number(typed);
  const stops = stop.split("\n").filter((line) => line !== "");
  if (stops.length > 0) fields.stop = stops;
  if (thinking === "on" || thinking === "off") fields.enable_thinking = thinking === "on";
  else if (thinking !== "") fields.reasoning_effort = thinking;
  if (schema.trim() !== "") {
    const json_schema = { name: "answer", schema: parsed("The JSON Schema", schema) };
    fields.response_format = { type: "json_schema", json_schema };
  }
  if (tools.trim() !== "") fields.tools = parsed("The list of tools", tools);
  return fields;
}

function parsed(what: string, json: string): unknown {
  try {
    return JSON.parse(json);
  } catch (error) {
    throw new Error(`${what} is not JSON: ${(error as Error).message}`);
  }
}

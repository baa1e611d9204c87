/**
 * All settings of a person, each with its unit, default and one sentence. They define the command-line
 * options, environment variables, `--help` and docs/reference/config.md.
 */

import { type GemmChoice, gemmNames, type KvFormat, kvFormats } from "../gpu/native.ts";
import { type Quant, quantNames } from "../model/formats.ts";
import { engineDefaults } from "../scheduler/engine/engine-options.ts";
import { isSendable, UNSENDABLE } from "./http/auth.ts";
import {
  ConfigError,
  choice,
  decimal,
  flag,
  fromHome,
  integer,
  list,
  notEmpty,
  oneOf,
  optional,
  type Setting,
  setting,
  text,
} from "./setting.ts";

export { ConfigError, choice, decimal, flag, fromHome, integer, list, optional, type Setting, text };

/** Device to compute on. */
export type DeviceChoice =
  | { readonly kind: "auto" }
  | { readonly kind: "cpu"; readonly engines: number }
  | { readonly kind: "simulated"; readonly engines: number }
  /** GPUs with one engine each. */
  | { readonly kind: "cuda"; readonly gpus: readonly number[] }
  | { readonly kind: "emu" };

/**
 * Names of the answer fields with the model's reasoning: servers write different ones, and clients read
 * different ones.
 */
export const reasoningFields = ["both", "reasoning_content", "reasoning"] as const;
export type ReasoningField = (typeof reasoningFields)[number];

/** Folder of packed weights. */
export type PackedChoice = "auto" | "off" | { readonly folder: string };

/** Folder of batch jobs. */
export type DataChoice = "auto" | "off" | { readonly folder: string };

/** Source of drafted tokens. */
export type SpeculateChoice = "auto" | "off" | "suffix" | "mtp" | "draft";

/** Retention of a session's KV pages until its next turn. */
export type SessionsChoice = "auto" | "off";
/** Disk space for KV pages in GiB; 0: none. */
export type KvDiskChoice = "auto" | number;

export type DtypeChoice = "auto" | "bf16" | "f32";

/** Settings of `bunting serve`. A default of 0 with a `defaultText` means what that text says. */
export const serverSettings = Object.freeze({
  host: text({
    default: "127.0.0.1",
    sentence: "Address to listen on. An address that others can reach needs an API key.",
  }),
  port: integer({
    default: 8000,
    min: 0,
    max: 65535,
    sentence: "TCP port to listen on; 0 takes any free one.",
  }),
  apiKey: list({
    placeholder: "key",
    defaultText: "no key needed",
    sentence: "Accept requests with this key (`Authorization: Bearer <key>`); may be given several times.",
    item: parseKey,
  }),
  apiKeyFile: optional({
    placeholder: "file",
    sentence:
      "File of accepted keys, one per line, each with a name after a # if it has one; read again when it changes.",
  }),
  quota: list({
    placeholder: "key=tokens",
    defaultText: "none",
    sentence:
      "Tokens that a key may have computed in a day (UTC), as key=tokens or key=tokens/day; further requests get status 429. May be given several times.",
    item: (typed) => {
      if (/^.+=\d+(\/day)?$/.test(typed)) return typed;
      throw new ConfigError(`"${typed}" is no quota: write it as key=tokens or key=tokens/day.`);
    },
  }),
  adminKey: list({
    placeholder: "key",
    defaultText: "none; without any key everybody sees everything",
    sentence:
      "Accept requests with this key too; it also sees the requests of all keys (`/metrics`, `/state`, `/slots`). May be given several times.",
    item: parseKey,
  }),
  adminKeyFile: optional({
    placeholder: "file",
    sentence: "File of such keys, one per line; read again when it changes.",
  }),
  allowHost: list({
    placeholder: "name",
    defaultText: "names of this machine",
    sentence:
      "Host header that is accepted on a loopback address, such as the name behind a proxy; may be given several times.",
    item: parseHostName,
  }),
  corsOrigin: list({
    placeholder: "origin",
    defaultText: "pages of this machine, on a loopback address",
    sentence:
      "Origin whose pages may call from a browser, such as https://chat.example, https://*.chat.example for all names below it, http://localhost:* for all ports, or * for all; may be given several times.",
    item: parseOrigin,
  }),
  connectionsPerAddress: integer({
    default: 0,
    min: 0,
    max: 1_000_000,
    defaultText: "a quarter of all connections",
    sentence:
      "Maximum connections per client address, other than this machine's own; raise it for a proxy on another machine.",
  }),
  sharePrefixes: flag({
    sentence:
      "Share the prefix cache between API keys. Response times may then reveal the prompts of others.",
  }),
  publicPrefix: list({
    placeholder: "file",
    defaultText: "none",
    sentence:
      "File with a public text, such as a system prompt, whose cached prefix all keys share; may be given several times.",
  }),
  takeOver: flag({
    sentence:
      "Take over the address from the Bunting server that has it, as soon as this one is ready; that one finishes its answers and ends (Linux).",
  }),
  insecure: flag({ sentence: "Listen without a key on an address that others can reach." }),
  anyModelName: flag({ sentence: "Answer requests for any model's name with the served model." }),
  servedModelName: list({
    placeholder: "name",
    defaultText: "the published name, the folder's name, or a GGUF file's own",
    sentence: "Name of the model for clients; may be given several times, the first is shown in answers.",
  }),
  reasoningField: choice<ReasoningField>({
    among: reasoningFields,
    default: "both",
    defaultText: "both, with the same text",
    sentence: "Field of OpenAI's answers that holds the model's thoughts.",
  }),
  chatTemplate: optional({
    placeholder: "file|name",
    defaultText: "the model's usual one",
    sentence:
      "Chat template in place of the model's usual one: a Jinja file, or the name of another of its templates, such as tool_use.",
  }),
  chatTemplateKwargs: setting<string | null>({
    placeholder: "json",
    default: null,
    defaultText: "none",
    sentence:
      "Arguments for the chat template where a request names no others, such as '{\"enable_thinking\": false}'.",
    parse: parseJsonObject,
  }),
  model: list({
    placeholder: "name=path",
    defaultText: "the one model of the argument",
    sentence:
      "Model to load when a request names it: a name for clients, and a folder, GGUF file or published name. May be given several times; the first one answers requests without a name.",
    holdsCommas: true,
  }),
  models: optional({
    placeholder: "folder",
    defaultText: "none",
    sentence: "Folder of models to load when a request names them: its model folders and GGUF files.",
  }),
  config: optional({
    placeholder: "file",
    defaultText: "none",
    sentence:
      "TOML file with these options, without their dashes, and models with settings of their own. Options and variables win over it.",
  }),
  memory: setting<number>({
    placeholder: "size",
    default: 0,
    defaultText: "free memory at the start, less a reserve",
    sentence:
      "Memory of all loaded models together, such as 24GiB or 800MiB: weights, KV caches and workspaces. Beyond it the least recently used model makes room.",
    parse: parseBytes,
  }),
  keepAlive: setting<number>({
    placeholder: "duration",
    default: Number.POSITIVE_INFINITY,
    defaultText: "until others need its memory",
    sentence: "Time for which a model without requests stays loaded, such as 5m, 1h30m or 0; -1 is no limit.",
    parse: parseDurationMs,
  }),
  pin: list({
    placeholder: "name",
    defaultText: "none",
    sentence: "Model that is loaded at the start and never dropped; may be given several times.",
  }),
  modelWaitS: decimal({
    unit: "seconds",
    default: 300,
    min: 0.001,
    max: 86400,
    sentence: "How long a request waits at most for its model to be loaded; then it gets status 503.",
  }),
  device: setting<DeviceChoice>({
    placeholder: "auto|cpu[:N]|cuda[:i,j]|emu|simulated[:N]",
    default: { kind: "auto" },
    defaultText: "the GPUs if there are any, else the CPU",
    sentence:
      "Compute device. cpu, or cpu:N for N engines on one copy of the weights; cuda, or cuda:i,j for an engine per GPU; emu: the CUDA kernels on an emulated GPU, slowly; simulated: no model.",
    parse: parseDevice,
  }),
  threads: integer({
    unit: "threads",
    default: 0,
    defaultText: "all cores; all but one from four cores on",
    min: 1,
    max: 1024,
    sentence: "Compute threads of all engines together.",
  }),
  dtype: choice<DtypeChoice>({
    among: ["auto", "bf16", "f32"],
    default: "auto",
    defaultText: "auto",
    sentence: "Compute type. auto: f32 for f32 weights, else bf16.",
  }),
  quant: choice<Quant>({
    among: quantNames,
    default: "auto",
    defaultText: "auto",
    sentence:
      "Weight format. auto keeps the blocks of GGUF files that the device computes, and converts others to int8, int6 or int4. int8 halves bf16, in groups of 128; int4 quarters it, in groups of 32; int6 is between. q8_0 is int8 in groups of 32, for activations with outliers. fp8 is for GPUs.",
  }),
  kv: setting<KvFormat>({
    placeholder: "plain|int8|int4|fp8",
    default: "plain",
    sentence:
      "KV cache format. int8 (CPU) and fp8 (GPU) halve it, with one scale per token and head. int4 (CPU) keeps it in less than a third, rotated; it costs some quality.",
    defaultText: "plain, as --dtype says",
    parse: (value) => oneOf(value, kvFormats),
  }),
  gemm: choice<GemmChoice>({
    among: gemmNames,
    default: "own",
    defaultText: "own",
    sentence:
      "bf16 GPU kernels. own: same results under any load. cublaslt: NVIDIA's library, which must be installed, for steps of more than 64 tokens; results may vary with load.",
  }),
  packedWeights: setting<PackedChoice>({
    placeholder: "auto|off|folder",
    default: "auto",
    defaultText:
      "only for weights of 256 MiB or more that loading rounds: beside the model, else in the user's cache folder",
    sentence: "Folder for weights in their memory layout, which later starts map at once.",
    parse: (value) => (value === "auto" || value === "off" ? value : { folder: fromHome(value) }),
  }),
  lora: list({
    placeholder: "name=path",
    defaultText: "none",
    sentence:
      "LoRA adapter of the model, a PEFT folder or a GGUF file, that requests choose by its name; may be given several times. CPUs only.",
    holdsCommas: true,
    item: parseAdapter,
  }),
  maxModelLen: integer({
    unit: "tokens",
    default: 0,
    defaultText: "the model's own limit",
    min: 1,
    max: 2 ** 24,
    sentence: "Longest sequence, prompt and answer together.",
  }),
  ropeScaling: setting<string | null>({
    placeholder: "json",
    default: null,
    defaultText: "the model's own",
    sentence:
      'Scaling of positions for longer sequences, in the form of config.json, such as \'{"rope_type": "yarn", "factor": 4, "original_max_position_embeddings": 32768}\'. The longest sequence becomes what the factor gives.',
    parse: parseJsonObject,
  }),
  kvCacheGib: decimal({
    unit: "GiB",
    default: 0,
    defaultText: "0, chosen from free memory",
    min: 0,
    max: 65536,
    sentence: "Memory for keys, values and recurrent states of all engines together.",
  }),
  kvHost: decimal({
    unit: "GiB",
    default: 0,
    defaultText: "none",
    min: 0,
    max: 65536,
    sentence:
      "Memory of the host in GiB, pinned, for KV pages that leave the GPUs; all engines of a model share it. GPUs only.",
  }),
  kvDisk: setting<KvDiskChoice>({
    unit: "GiB",
    placeholder: "auto|number",
    default: "auto",
    defaultText:
      "a twentieth of the free space, at most 16 GiB; none below 1 GiB, on GPUs, or for weights of less than 256 MiB",
    sentence:
      "Disk space in GiB for KV pages, from which prefixes are read again after eviction and restarts; 0 keeps none. They are below the folder of `--data` if it names one, else in the user's cache folder.",
    parse: parseKvDisk,
  }),
  kvDiskKeyFile: optional({
    placeholder: "file",
    defaultText: "none; the folder is private, but not encrypted",
    sentence: "File with a key of 32 bytes, or 64 hexadecimal digits, that encrypts the KV pages on disk.",
  }),
  stepTokens: integer({
    unit: "tokens",
    default: 2048,
    min: 16,
    max: 65536,
    sentence:
      "Maximum tokens of a step, prefill and decode; memory is reserved for them. The scheduler takes fewer to keep a step within 100 ms or `--tbt-ms`.",
  }),
  tbtMs: decimal({
    unit: "milliseconds",
    default: 0,
    defaultText: "off",
    min: 0,
    max: 60_000,
    sentence: "Target for the time between two tokens of a stream; limits the prompt tokens of each step.",
  }),
  speculate: choice<SpeculateChoice>({
    among: ["auto", "off", "suffix", "mtp", "draft"],
    default: "auto",
    defaultText: "auto",
    sentence:
      "Source of drafted tokens, which a step checks where that is worth its time; answers are the same with and without. suffix: what followed the same tokens earlier in the prompt or the answer. mtp: the model's own head (multi-token prediction), on a CPU; refused where there is none. draft: the model of `--draft-model`. auto: suffix, and that model if one is named, else mtp where the model has a head.",
  }),
  draftModel: optional({
    placeholder: "folder|file|name",
    defaultText: "none",
    sentence:
      "Small model of the same vocabulary that drafts tokens for the model (`--speculate draft` or `auto`), on a CPU: a model folder, a GGUF file, or a published name. It also reads the prompts.",
  }),
  sessions: choice<SessionsChoice>({
    among: ["auto", "off"],
    default: "auto",
    defaultText: "auto",
    sentence:
      "auto: recognises the turns of a conversation, and keeps its pages for the next turn as long as that is likely to come; answers are the same with and without.",
  }),
  sequencesMax: integer({
    unit: "sequences",
    default: 0,
    defaultText: "as many as memory and the device take",
    min: 1,
    max: 65536,
    sentence: "Maximum running sequences per engine, at most `--step-tokens`; further ones wait.",
  }),
  queueMax: integer({
    unit: "sequences",
    default: engineDefaults.queueMax,
    min: 1,
    max: 1_000_000,
    sentence: "Maximum waiting sequences per engine; further requests get status 503.",
  }),
  data: setting<DataChoice>({
    placeholder: "auto|off|folder",
    default: "auto",
    defaultText:
      "a folder for each model in $XDG_DATA_HOME/bunting or ~/.local/share/bunting, and none for simulated engines",
    sentence:
      "Folder for uploaded files, batches and results; unfinished batches resume at the next start. A folder named here also keeps responses and the use of keys, which are else in memory.",
    parse: (value) => {
      const given = notEmpty(value);
      return given === "auto" || given === "off" ? given : { folder: fromHome(given) };
    },
  }),
  batchLinesMax: integer({
    unit: "lines",
    default: 50_000,
    min: 1,
    max: 10_000_000,
    sentence: "Maximum lines of a batch file.",
  }),
  batchesMax: integer({
    unit: "batches",
    default: 1000,
    min: 1,
    max: 100_000,
    sentence: "Unfinished batches of a key at most; further ones get status 429.",
  }),
  batchFileMib: integer({
    unit: "MiB",
    default: 200,
    min: 1,
    max: 2 ** 20,
    sentence: "Maximum size of an uploaded file.",
  }),
  batchStorageGib: integer({
    unit: "GiB",
    default: 20,
    min: 1,
    max: 2 ** 20,
    sentence:
      "Disk space that files, batches and results of all keys may take; beyond it the server refuses new files and batches.",
  }),
  batchResultDays: integer({
    unit: "days",
    default: 30,
    min: 1,
    max: 36_500,
    sentence: "Retention of batch files, uploads and results, where a client does not set it.",
  }),
  programs: optional({
    placeholder: "folder",
    defaultText: "none",
    sentence: "Folder of program graphs, a YAML or JSON file each; each is served as a model.",
  }),
  parrotApi: flag({
    sentence: "Also accept the API of the Parrot paper and its client.",
  }),
  logRequests: flag({
    sentence:
      "Log a line for each response, except successful GETs, and for each generation: time, id, route, status, tokens, speed; no text.",
  }),
  metricsKeys: integer({
    unit: "keys",
    default: 0,
    defaultText: "none",
    min: 0,
    max: 10_000,
    sentence:
      "Keys whose use `/metrics` tells apart, the first ones to be used; the others count together. A key is named by its comment in the key file, else by the start of its digest.",
  }),
  otlpEndpoint: setting<string | null>({
    placeholder: "url",
    default: null,
    defaultText: "what OTEL_EXPORTER_OTLP_ENDPOINT names, else none",
    sentence:
      "Send a trace of each request to this OpenTelemetry collector, such as http://localhost:4318 (OTLP over HTTP); no text of prompts or answers.",
    parse: parseHttpUrl,
  }),
  showCachedText: flag({
    sentence:
      "Let an operator's key read the first words of cached prefixes, of all keys, on the page's Cache tab; without it the page counts tokens alone.",
  }),
  record: optional({
    placeholder: "file",
    defaultText: "off",
    sentence:
      "Record scheduler inputs and decisions to this file, prompts and answers included; `bunting simulate --replay` repeats them.",
  }),
  shutdownTimeoutS: decimal({
    unit: "seconds",
    default: 30,
    min: 0,
    max: 86400,
    sentence: "How long running answers may take to finish after SIGTERM or SIGINT.",
  }),
});

/** Headings of `--help`, each at the first setting of its group. */
export const serverHeadings: { readonly [Name in keyof typeof serverSettings]?: string } = {
  host: "Address:",
  apiKey: "Who may call, and what callers share:",
  anyModelName: "Names and fields of answers:",
  chatTemplate: "Chats:",
  model: "Several models:",
  device: "What computes, and in which numbers:",
  maxModelLen: "Memory and pace:",
  data: "Jobs:",
  programs: "Programs:",
  logRequests: "Watching and stopping:",
};

/** Types of parsed settings. */
export type Values<Settings> = {
  readonly [Name in keyof Settings]: Settings[Name] extends Setting<infer Value> ? Value : never;
};

/** Parsed settings of `bunting serve`. */
export type Config = Values<typeof serverSettings>;

/** A configuration: the defaults with changes. */
export function makeConfig(changes: Partial<Config> = {}): Config {
  const defaults = Object.fromEntries(
    Object.entries(serverSettings).map(([name, { default: value }]) => [name, value]),
  );
  return Object.freeze({ ...(defaults as unknown as Config), ...changes });
}

/** Option of a setting: stepTokens → --step-tokens. */
export function optionName(field: string): string {
  return `--${field.replace(/[A-Z]/g, (letter) => `-${letter.toLowerCase()}`)}`;
}

/** Environment variable of a setting: stepTokens → BUNTING_STEP_TOKENS. */
export function variableName(field: string): string {
  return `BUNTING_${field.replace(/[A-Z]/g, (letter) => `_${letter}`).toUpperCase()}`;
}

/** Default in readable form; null for a switch or an option that is off. */
export function defaultText(setting: Setting<unknown>): string | null {
  if (setting.defaultText !== null) return setting.defaultText;
  if (setting.placeholder === null || setting.default === null || setting.default === "") return null;
  return `${setting.default}${setting.unit === null ? "" : ` ${setting.unit}`}`;
}

/** True if requests need an API key. */
export function needsKey({ apiKey, apiKeyFile, adminKey, adminKeyFile }: Config): boolean {
  return apiKey.length > 0 || apiKeyFile !== null || adminKey.length > 0 || adminKeyFile !== null;
}

/** True if only programs on this machine can reach the address. */
export function isLoopback(host: string): boolean {
  return host === "localhost" || host === "::1" || /^127\.\d+\.\d+\.\d+$/.test(host);
}

/** Normalises the place of an adapter. Throws ConfigError if it is not a name and a path. */
function parseAdapter(value: string): string {
  const [, name = "", path = ""] = /^([^=]*)=(.*)$/s.exec(value) ?? [];
  if (name !== "" && path !== "") return `${name}=${fromHome(path)}`;
  throw new ConfigError(`"${value}" is not a name and a path, such as sql=adapters/sql.`);
}

function parseKey(value: string): string {
  if (isSendable(value)) return value;
  throw new ConfigError(`An API key holds ${UNSENDABLE}.`);
}

/**
 * Normalises a host name to compare it with a browser's or client's: lower case, without a port. Throws
 * ConfigError.
 */
function parseHostName(value: string): string {
  const name = value.toLowerCase();
  if (/[/\s]|:\d*$/.test(name))
    throw new ConfigError(`"${value}" is not a name alone, such as chat.example.`);
  return name;
}

/**
 * Normalises an origin, or a pattern such as `https://*.chat.example` or `http://localhost:*`, to the form
 * that browsers send. Throws ConfigError for a value that no origin matches, such as a URL with a path.
 */
function parseOrigin(value: string): string {
  if (value === "*" || value === "null") return value;
  const [, scheme = "", below = "", rest = "", anyPort = ""] =
    /^([a-z][a-z0-9+.-]*:\/\/)(\*\.)?([^*]+?)(:\*)?\/?$/i.exec(value) ?? [];
  const url = URL.canParse(scheme + rest) ? new URL(scheme + rest) : null;
  const isOrigin =
    url !== null &&
    url.host !== "" &&
    url.pathname.length <= 1 &&
    `${url.search}${url.hash}${url.username}` === "" &&
    !(anyPort !== "" && /:\d*$/.test(rest));
  if (!isOrigin)
    throw new ConfigError(
      `"${value}" is not an origin, such as https://chat.example, https://*.chat.example or http://localhost:*.`,
    );
  return `${url.protocol}//${below}${url.host}${anyPort}`;
}

/** A URL as it was typed. Throws ConfigError unless it is one of HTTP or HTTPS. */
export function parseHttpUrl(typed: string): string {
  if (URL.canParse(typed) && /^https?:$/.test(new URL(typed).protocol)) return typed;
  throw new ConfigError(`"${typed}" is not a URL of HTTP or HTTPS, such as http://localhost:4318.`);
}

/** Parses a size such as 24GiB, 800M or 1.5 GB. Decimal units count in thousands. Throws ConfigError. */
function parseBytes(value: string): number {
  const [, number, unit, isBinary] = /^(\d{1,9}(?:\.\d{1,6})?) ?([KMGT])(i?)B?$/i.exec(value) ?? [];
  const bytes =
    Number(number) * (isBinary === "i" ? 1024 : 1000) ** ("KMGT".indexOf(unit?.toUpperCase() ?? "") + 1);
  if (number === undefined || bytes < 1)
    throw new ConfigError(`"${value}" is not a size, such as 24GiB or 800MiB.`);
  return Math.floor(bytes);
}

const durationUnitsMs = { h: 3_600_000, m: 60_000, s: 1000, ms: 1, us: 1e-3, µs: 1e-3, ns: 1e-6 } as const;

/**
 * Parses a duration as Ollama's clients write them: 5m, 1h30m, or seconds. A negative one is infinite. Throws
 * ConfigError.
 */
export function parseDurationMs(value: string): number {
  const [, sign = "", rest = ""] = /^(-?)(.*)$/s.exec(value)!;
  const parts = [...rest.matchAll(/(\d{1,12}(?:\.\d{1,9})?)(ms|us|µs|ns|h|m|s)/g)];
  const isPlain = /^\d{1,12}(\.\d{1,9})?$/.test(rest);
  if (!isPlain && (parts.length === 0 || parts.map(([whole]) => whole).join("") !== rest))
    throw new ConfigError(`"${value}" is not a duration, such as 5m, 1h30m, 90 (seconds) or -1 (no limit).`);
  if (sign === "-") return Number.POSITIVE_INFINITY;
  if (isPlain) return Number(rest) * 1000;
  return parts.reduce(
    (sum, [, number, unit]) => sum + Number(number) * durationUnitsMs[unit as keyof typeof durationUnitsMs],
    0,
  );
}

const diskGib = decimal({ default: 0, min: 0, max: 65536, sentence: "" });

function parseKvDisk(value: string): KvDiskChoice {
  if (value === "auto") return value;
  try {
    return diskGib.parse(value);
  } catch {
    throw new ConfigError(`"${value}" is not auto, nor a number between 0 and 65536.`);
  }
}

function parseDevice(value: string): DeviceChoice {
  if (value === "auto" || value === "emu") return { kind: value };
  const engines = /^(cpu|simulated)(?::([1-9]\d{0,2}))?$/.exec(value);
  if (engines !== null) {
    const count = Number(engines[2] ?? 1);
    return engines[1] === "cpu" ? { kind: "cpu", engines: count } : { kind: "simulated", engines: count };
  }
  const gpus = /^cuda(?::(\d{1,3}(?:,\d{1,3})*))?$/.exec(value);
  if (gpus !== null) {
    const numbers = (gpus[1] ?? "0").split(",").map(Number);
    if (new Set(numbers).size === numbers.length) return { kind: "cuda", gpus: numbers };
    throw new ConfigError(`"${value}" names a GPU twice.`);
  }
  throw new ConfigError(
    `"${value}" is not one of auto, cpu, cpu:N, cuda, cuda:i,j, emu, simulated, simulated:N.`,
  );
}

/** The text itself, which must be JSON of an object. Throws ConfigError. */
function parseJsonObject(text: string): string {
  try {
    const value: unknown = JSON.parse(text);
    if (typeof value === "object" && value !== null && !Array.isArray(value)) return text;
  } catch {
    // Not JSON at all.
  }
  throw new ConfigError(`It is not a JSON object, such as {"name": true}, but ${text}.`);
}

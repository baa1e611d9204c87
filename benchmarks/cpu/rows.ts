/** Rows of the table: measurement, aim, and how each is run. */
import { join, resolve } from "node:path";
import { type Isa, openLibrary } from "../../gpu/native.ts";
import { streamChat } from "../../server/cli/client.ts";
import type { LoadReport } from "../../server/cli/load.ts";
import { type Ceilings, decodeFloorSeconds, measureReadBytes, prefillFloorSeconds } from "./ceilings.ts";
import { EngineBench, type Format, isFileFormat, type Streams } from "./engine.ts";
import { type Llama, llamaBatched, llamaDecode, llamaPrefill, llamaServers } from "./llama.ts";
import { ggufFile, type ModelName, modelFolder } from "./models.ts";
import { type Configuration, compared, measureRounds, median, roundsText, type Spread } from "./rounds.ts";
import { startProgram } from "./runs.ts";
import { type Crowd, contextTokensOf, serveBoth, startOurs } from "./serving.ts";

/** Line of the table. */
export interface Figure {
  /** Unique description. */
  readonly what: string;
  readonly ours: number;
  readonly unit: "tok/s" | "ms";
  /** Share of the speed that the machine's ceilings allow, 0 … 1; null: unknown. */
  readonly share: number | null;
  readonly llama: number | null;
  /** Fastest configuration of llama.cpp. */
  readonly llamaWith: string;
  /** Spread of the ratio to llama.cpp over rounds; null if not measured in rounds of both. */
  readonly spread: Spread | null;
  readonly aim: Aim;
}

/** Aim of a row; an absent part is no aim. */
export interface Aim {
  /** Aim as a multiple of llama.cpp: tokens per second at least, milliseconds at most. */
  readonly ratio?: number;
  readonly share?: number;
  readonly msMost?: number;
}

/** Measurement of one or two figures. */
export interface Row {
  readonly name: string;
  /** Model of the row. Rows of one model in one format are adjacent: it is loaded once. */
  readonly model: ModelName | null;
  readonly format: Format | null;
  run(bench: Bench): Promise<readonly Figure[]>;
}

export interface Settings {
  readonly place: string;
  readonly threads: number;
  readonly isa: Isa | "auto";
  readonly library: string;
  readonly llamaBench: string | null;
  readonly llamaServer: string | null;
  readonly ceilings: Ceilings;
}

/** State that rows share: the settings and the open model. */
export class Bench {
  readonly settings: Settings;
  #open: { readonly name: ModelName; readonly format: Format; readonly engine: EngineBench } | null = null;

  constructor(settings: Settings) {
    this.settings = settings;
  }

  async engine(name: ModelName, format: Format): Promise<EngineBench> {
    if (this.#open?.name === name && this.#open.format === format) return this.#open.engine;
    this.close();
    const { library, place, threads, isa, llamaBench } = this.settings;
    if (isFileFormat(format) && llamaBench === null)
      throw new Error(`a file in ${format} is written by llama-quantize, which is beside --llama-bench`);
    const folder = isFileFormat(format)
      ? await ggufFile(place, name, format, llamaBench!)
      : modelFolder(place, name);
    const engine = new EngineBench(openLibrary(library), folder, format, threads, isa);
    this.#open = { name, format, engine };
    return engine;
  }

  close(): void {
    this.#open?.engine.close();
    this.#open = null;
  }
}

/**
 * Rounds of a single stream, which is bound by memory bandwidth. On a shared machine that varies so much that
 * only many rounds have a steady median.
 */
const ROUNDS_ONE_STREAM = 21;
/** Rounds of all other rows, which are mostly compute bound. */
const ROUNDS = 3;

/** Work of both sides in each round. */
interface Work {
  readonly rounds: number;
  /** Runs ours once, in the open engine; returns tokens per second. */
  ours(): number;
  llama(llama: Llama): readonly Configuration[];
  /** Lower bound of the time of one token by the ceilings. */
  floorSeconds(ceilings: Ceilings): number;
}

function prefill(model: ModelName, format: Format, tokens: number, aim: Aim): Row {
  const name = `${model} ${format}: prefill ${tokens}`;
  return {
    ...{ name, model, format },
    run: async (bench) => {
      const engine = await bench.engine(model, format);
      const work: Work = {
        rounds: ROUNDS,
        ours: () => engine.prefill(tokens),
        llama: (llama) => llamaPrefill(llama, tokens),
        floorSeconds: (ceilings) => prefillFloorSeconds(engine.shape, tokens, format, ceilings) / tokens,
      };
      return [{ what: name, ...(await sideBySide(bench, model, format, work)), aim }];
    },
  };
}

function decode(model: ModelName, format: Format, what: string, streams: Streams, aim: Aim): Row {
  const name = `${model} ${format}: decode, ${what}`;
  const isOne = streams.streams === 1;
  return {
    ...{ name, model, format },
    run: async (bench) => {
      const engine = await bench.engine(model, format);
      const { shape, weightBytes } = engine;
      const work: Work = {
        rounds: isOne ? ROUNDS_ONE_STREAM : ROUNDS,
        ours: () => engine.decode(streams),
        llama: (llama) => (isOne ? llamaDecode : llamaBatched)(llama, streams),
        floorSeconds: (ceilings) =>
          decodeFloorSeconds(shape, weightBytes, streams, format, ceilings) / streams.streams,
      };
      return [{ what: name, ...(await sideBySide(bench, model, format, work)), aim }];
    },
  };
}

/** Row of one stream far into a context, ours alone: llama.cpp would take many minutes to compute the context. */
function decodeAfter(model: ModelName, format: Format, contextTokens: number): Row {
  const name = `${model} ${format}: decode, 1 stream after ${contextTokens.toLocaleString("en")} tokens`;
  return {
    ...{ name, model, format },
    run: async (bench) => {
      const engine = await bench.engine(model, format);
      const streams: Streams = { streams: 1, contextTokens, sharedTokens: 0 };
      const ours = engine.decode(streams);
      const { shape, weightBytes } = engine;
      const share = decodeFloorSeconds(shape, weightBytes, streams, format, bench.settings.ceilings) * ours;
      const alone = { llama: null, llamaWith: "", spread: null, aim: {} };
      return [{ what: name, ours, unit: "tok/s", share, ...alone }];
    },
  };
}

async function sideBySide(
  bench: Bench,
  model: ModelName,
  format: Format,
  work: Work,
): Promise<Omit<Figure, "what" | "aim">> {
  const { ceilings, library, threads, llamaBench } = bench.settings;
  const configurations =
    llamaBench === null ? [] : work.llama(await llamaOf(bench, llamaBench, model, format));
  const readBytes = async (): Promise<number> => measureReadBytes(library, threads);
  const rounds = await measureRounds(work.rounds, readBytes, work.ours, configurations);
  const shares = rounds.map((round) => {
    return work.floorSeconds({ ...ceilings, readBytes: round.readBytes }) * round.ours;
  });
  const names = configurations.map(({ name }) => name);
  console.error(roundsText(rounds, names));
  return { ...compared(rounds, names), unit: "tok/s", share: median(shares) };
}

async function llamaOf(
  { settings: { llamaBench, place, threads } }: Bench,
  program: string,
  model: ModelName,
  format: Format,
): Promise<Llama> {
  return { program, gguf: await ggufFile(place, model, format, llamaBench ?? program), threads };
}

function server(model: ModelName, format: Format, what: string, crowd: Crowd, aims: [Aim, Aim]): Row {
  const name = `${model} ${format}: server, ${what}`;
  const isShared = crowd.sharedTokens > 0;
  return {
    ...{ name, model, format },
    run: async (bench) => {
      bench.close();
      const { place, threads, llamaServer } = bench.settings;
      const choices =
        llamaServer === null
          ? []
          : llamaServers(
              await llamaOf(bench, llamaServer, model, format),
              crowd.clients,
              contextTokensOf(crowd),
            );
      const folder = modelFolder(place, model);
      const { ours, llama } = await serveBoth(crowd, () => startOurs(folder, format, threads), choices);
      const rateOf = (report: LoadReport): number => report.outputTokensPerSecond;
      const msOf = (report: LoadReport): number => (isShared ? report.ttftMs : report.tbtMs)!.p99;
      const figure = (of: (report: LoadReport) => number): Omit<Figure, "what" | "unit" | "aim"> => ({
        ...{ ours: median(ours.map(of)), share: null, spread: null },
        ...{ llama: llama === null ? null : of(llama.report), llamaWith: llama?.name ?? "" },
      });
      const waitName = `${name}: ${isShared ? "TTFT" : "TBT"} p99`;
      return [
        { what: name, unit: "tok/s", ...figure(rateOf), aim: aims[0] },
        { what: waitName, unit: "ms", ...figure(msOf), aim: aims[1] },
      ];
    },
  };
}

const root = resolve(import.meta.dir, "../..");

/** First start, which extracts the library and the model. */
const embeddedStart: Row = {
  ...{ name: "embedded model: executable start to first token", model: null, format: null },
  run: async (bench) => {
    bench.close();
    const firstTokenMs = async (): Promise<number> => {
      const startMs = performance.now();
      const running = await startProgram(
        (port) => [join(root, "dist/bunting"), "serve", "--port", String(port)],
        "/health/ready",
      );
      const body = { model: "demo", messages: [{ role: "user", content: "Who are you?" }], max_tokens: 4 };
      const target = { url: running.url, apiKey: null };
      for await (const event of streamChat(target, body, new AbortController().signal)) {
        if (event.kind === "text") break;
      }
      const tookMs = performance.now() - startMs;
      await running.stop();
      return tookMs;
    };
    await firstTokenMs();
    const ours = Math.min(await firstTokenMs(), await firstTokenMs(), await firstTokenMs());
    return [started(embeddedStart.name, ours, { msMost: 300 })];
  },
};

/** Second start; the first one packs the weights and keeps them. */
function secondStart(model: ModelName, format: Format, aim: Aim): Row {
  const name = `${model} ${format}: second start to ready`;
  return {
    ...{ name, model, format },
    run: async (bench) => {
      bench.close();
      const { place, threads } = bench.settings;
      const readyMs = async (): Promise<number> => {
        const running = await startOurs(modelFolder(place, model), format, threads);
        await running.stop();
        return running.readyMs;
      };
      await readyMs();
      return [started(name, await readyMs(), aim)];
    },
  };
}

function started(what: string, ours: number, aim: Aim): Figure {
  return { what, ours, unit: "ms", share: null, llama: null, llamaWith: "", spread: null, aim };
}

const own = (streams: number): Streams => ({ streams, contextTokens: 128, sharedTokens: 0 });
const sharing: Streams = { streams: 32, contextTokens: 512, sharedTokens: 512 };

function streamRows(model: ModelName, format: Format): Row[] {
  return [
    decode(model, format, "8 streams", own(8), { ratio: 2.5 }),
    decode(model, format, "32 streams", own(32), { ratio: 4 }),
    decode(model, format, "32 streams sharing 512 tokens", sharing, { ratio: 3 }),
  ];
}

function oneStream(model: ModelName, format: Format): Row {
  const aim = format === "bf16" ? { ratio: 1.4, share: 0.85 } : { ratio: 1.2 };
  return decode(model, format, "1 stream", own(1), aim);
}

const ownPrompts: Crowd = {
  ...{ clients: 8, requests: 16, sharedTokens: 0, ownTokens: 512, outputTokens: 64 },
};
const sharedPrompt: Crowd = {
  ...{ clients: 16, requests: 16, sharedTokens: 1500, ownTokens: 50, outputTokens: 32 },
};

export const rows: readonly Row[] = [
  embeddedStart,
  oneStream("0.5B", "bf16"),
  ...streamRows("0.5B", "bf16"),
  prefill("0.5B", "int8", 512, { ratio: 2.5 }),
  oneStream("0.5B", "int8"),
  ...streamRows("0.5B", "int8"),
  server("0.5B", "int8", "8 clients, 512 own tokens, 64 out", ownPrompts, [{ ratio: 3 }, { ratio: 4 }]),
  server("0.5B", "int8", "16 clients, 1,500 shared + 50 own tokens, 32 out", sharedPrompt, [
    { ratio: 15 },
    { ratio: 10 },
  ]),
  oneStream("0.5B", "int4"),
  ...streamRows("0.5B", "int4"),
  prefill("1B", "bf16", 512, { ratio: 8, share: 0.4 }),
  prefill("1B", "bf16", 2048, { ratio: 8, share: 0.4 }),
  oneStream("1B", "bf16"),
  ...streamRows("1B", "bf16"),
  secondStart("1B", "bf16", { msMost: 3000 }),
  prefill("1B", "int8", 512, { ratio: 2.5 }),
  oneStream("1B", "int8"),
  ...streamRows("1B", "int8"),
  oneStream("1B", "int4"),
  ...(["0.5B", "1B"] as const).flatMap((model) => [
    prefill(model, "q4_k_m", 512, { ratio: 3 }),
    decode(model, "q4_k_m", "1 stream", own(1), { ratio: 1.15 }),
    decode(model, "q4_k_m", "8 streams", own(8), { ratio: 2.5 }),
    // Short prompts: 4,096 tokens would take llama.cpp minutes.
    decode(model, "q4_k_m", "32 streams", { ...own(32), contextTokens: 32 }, { ratio: 3.5 }),
  ]),
  ...(["30B-A3B", "gpt-oss"] as const).flatMap((model) => [
    prefill(model, "int4", 512, { ratio: 3 }),
    decode(model, "int4", "1 stream", own(1), { ratio: 1.1 }),
    decode(model, "int4", "8 streams", own(8), { ratio: 2.5 }),
  ]),
  prefill("gpt-oss", "mxfp4_moe", 512, { ratio: 2 }),
  decode("gpt-oss", "mxfp4_moe", "1 stream", own(1), { ratio: 1 }),
  decodeAfter("0.8B recurrent", "int8", 1024),
  decodeAfter("0.8B recurrent", "int8", 32_768),
  ...(["0.8B recurrent", "4B recurrent"] as const).flatMap((model) => [
    prefill(model, "int8", 512, { ratio: 2 }),
    decode(model, "int8", "1 stream", own(1), { ratio: 1.2 }),
  ]),
  ...(["q5_k_m", "q6_k", "q3_k_m", "iq4_xs"] as const).flatMap((format) => [
    prefill("1B", format, 512, { ratio: 2 }),
    decode("1B", format, "1 stream", own(1), { ratio: 1 }),
  ]),
];

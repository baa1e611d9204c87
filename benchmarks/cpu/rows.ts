/** The rows of the table: what is measured, what was aimed at, and how each is run. */
import { join, resolve } from "node:path";
import { type Isa, openLibrary } from "../../gpu/native.ts";
import { streamChat } from "../../server/cli/client.ts";
import { type Ceilings, decodeFloorSeconds, prefillFloorSeconds } from "./ceilings.ts";
import { EngineBench, type Format, type Streams } from "./engine.ts";
import { type Best, llamaBatched, llamaDecode, llamaPrefill } from "./llama.ts";
import { ggufFile, type ModelName, modelFolder } from "./models.ts";
import { startProgram } from "./runs.ts";
import { type Crowd, loadLlama, loadServer, startOurs } from "./serving.ts";

/** One line of the table. */
export interface Figure {
  /** Unique. */
  readonly what: string;
  readonly ours: number;
  readonly unit: "tok/s" | "ms";
  /** Of the speed that the machine's ceilings allow, 0 … 1; null where that is not known. */
  readonly share: number | null;
  readonly llama: number | null;
  /** The configuration in which llama.cpp was fastest. */
  readonly llamaWith: string;
  readonly aim: Aim;
}

/** What counts as reached; a part that is left out was not asked for. */
export interface Aim {
  /** Times llama.cpp: tokens per second at least, milliseconds at most. */
  readonly ratio?: number;
  readonly share?: number;
  readonly msMost?: number;
}

/** One measurement, of one figure or two. */
export interface Row {
  readonly name: string;
  /** Rows of one model in one format come together: it is loaded once. */
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

/** What rows share: the settings, and the model that is open. */
export class Bench {
  readonly settings: Settings;
  #open: { readonly name: ModelName; readonly format: Format; readonly engine: EngineBench } | null = null;

  constructor(settings: Settings) {
    this.settings = settings;
  }

  engine(name: ModelName, format: Format): EngineBench {
    if (this.#open?.name === name && this.#open.format === format) return this.#open.engine;
    this.close();
    const { library, place, threads, isa } = this.settings;
    const folder = modelFolder(place, name);
    const engine = new EngineBench(openLibrary(library), folder, format, threads, isa);
    this.#open = { name, format, engine };
    return engine;
  }

  close(): void {
    this.#open?.engine.close();
    this.#open = null;
  }
}

function prefill(model: ModelName, format: Format, tokens: number, aim: Aim): Row {
  const name = `${model} ${format}: prefill ${tokens}`;
  return {
    ...{ name, model, format },
    run: async (bench) => {
      const { ceilings } = bench.settings;
      const engine = bench.engine(model, format);
      const ours = engine.prefill(tokens);
      const share = (prefillFloorSeconds(engine.shape, tokens, format, ceilings) * ours) / tokens;
      const best = await beside(bench, model, format, (program, gguf, threads) =>
        llamaPrefill(program, gguf, threads, tokens),
      );
      return [compared(name, ours, share, best, aim)];
    },
  };
}

function decode(model: ModelName, format: Format, what: string, streams: Streams, aim: Aim): Row {
  const name = `${model} ${format}: decode, ${what}`;
  return {
    ...{ name, model, format },
    run: async (bench) => {
      const engine = bench.engine(model, format);
      const ours = engine.decode(streams);
      const { ceilings } = bench.settings;
      const floor = decodeFloorSeconds(engine.shape, engine.weightBytes, streams, format, ceilings);
      const measure = streams.streams === 1 ? llamaDecode : llamaBatched;
      const best = await beside(bench, model, format, (program, gguf, threads) =>
        measure(program, gguf, threads, streams),
      );
      return [compared(name, ours, (floor * ours) / streams.streams, best, aim)];
    },
  };
}

/** llama.cpp's best, if its place is known. */
async function beside(
  { settings: { llamaBench, place, threads } }: Bench,
  model: ModelName,
  format: Format,
  measure: (program: string, gguf: string, threads: number) => Promise<Best>,
): Promise<Best | null> {
  if (llamaBench === null) return null;
  return await measure(llamaBench, await ggufFile(place, model, format, llamaBench), threads);
}

function compared(what: string, ours: number, share: number | null, best: Best | null, aim: Aim): Figure {
  const llama = best?.perSecond ?? null;
  return { what, ours, unit: "tok/s", share, llama, llamaWith: best?.with ?? "", aim };
}

function server(model: ModelName, format: Format, what: string, crowd: Crowd, aims: [Aim, Aim]): Row {
  const name = `${model} ${format}: server, ${what}`;
  const isShared = crowd.sharedTokens > 0;
  return {
    ...{ name, model, format },
    run: async (bench) => {
      bench.close();
      const { place, threads, llamaServer, llamaBench } = bench.settings;
      const running = await startOurs(modelFolder(place, model), format, threads);
      const ours = await loadServer(running.url, crowd).finally(running.stop);
      const theirs =
        llamaServer === null
          ? null
          : await loadLlama(
              llamaServer,
              await ggufFile(place, model, format, llamaBench ?? llamaServer),
              threads,
              crowd,
            );
      const llamaWith = theirs?.with ?? "";
      const msOf = (report: typeof ours): number => (isShared ? report.ttftMs : report.tbtMs)!.p99;
      const rate: Figure = {
        ...{ what: name, ours: ours.outputTokensPerSecond, unit: "tok/s", share: null },
        ...{ llama: theirs?.report.outputTokensPerSecond ?? null, llamaWith, aim: aims[0] },
      };
      const wait: Figure = {
        ...{ what: `${name}: ${isShared ? "TTFT" : "TBT"} p99`, ours: msOf(ours), unit: "ms", share: null },
        ...{ llama: theirs === null ? null : msOf(theirs.report), llamaWith, aim: aims[1] },
      };
      return [rate, wait];
    },
  };
}

const root = resolve(import.meta.dir, "../..");

/** The first start extracts the library and the model. */
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

/** The first start packs the weights and keeps them. */
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
  return { what, ours, unit: "ms", share: null, llama: null, llamaWith: "", aim };
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
];

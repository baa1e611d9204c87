import { ApiError, engineError } from "../http/errors.ts";
import type { WholeTrace } from "../trace/traces.ts";
import type { PreparedLine } from "./door.ts";
import { digestOf, parseLine } from "./input.ts";
import type { JobParts } from "./job-parts.ts";
import { LineFault, type LineForm } from "./line-form.ts";
import type { BatchRecord, LineRecord, LineResult } from "./records.ts";

const DAMAGED = "input_damaged";

/**
 * Sends a batch's lines through the door: `prepare` before they are ordered, `answer` when they run. A
 * permanent refusal becomes the line's result; a temporary one is retried. Both methods resolve to null once
 * `signal` is aborted.
 */
export class LineAsker {
  readonly #parts: JobParts;
  readonly #batch: BatchRecord;
  readonly #signal: AbortSignal;
  readonly #form: LineForm;

  constructor(parts: JobParts, batch: BatchRecord, signal: AbortSignal) {
    this.#parts = parts;
    this.#batch = batch;
    this.#signal = signal;
    this.#form = parts.formOf(batch.endpoint);
  }

  /** Prepares a line's request, or gives its result if it was refused. Keeps it while memory has room. */
  async prepare(line: LineRecord): Promise<PreparedLine | LineResult | null> {
    const prepared = await this.#prepared(line);
    if (prepared !== null && "tokens" in prepared) this.#parts.prepared.keep(this.#batch, line, prepared);
    return prepared;
  }

  /** Runs a line's request. `trace`: the batch's; null for a batch without one. */
  async answer(line: LineRecord, trace: WholeTrace | null): Promise<LineResult | null> {
    const prepared = this.#parts.prepared.take(this.#batch, line) ?? (await this.#prepared(line));
    if (prepared === null || "result" in prepared) return prepared;
    const own = { "bunting.batch.id": this.#batch.id, "bunting.batch.line": line.line };
    const part = trace?.part(own) ?? null;
    return await this.#retrying(line, async () =>
      this.#form.answered(line, await prepared.answer(this.#signal, part)),
    );
  }

  #prepared(line: LineRecord): Promise<PreparedLine | LineResult | null> {
    const { endpoint, owner: tenant, priority } = this.#batch;
    return this.#retrying(line, () =>
      this.#parts.door({ endpoint, body: this.#bodyOf(line), tenant, priority }),
    );
  }

  async #retrying<Given>(
    line: LineRecord,
    attempt: () => Promise<Given>,
  ): Promise<Given | LineResult | null> {
    const { refused, unanswered } = this.#form;
    for (;;) {
      try {
        return await attempt();
      } catch (error) {
        if (this.#signal.aborted) return null;
        if (error instanceof LineFault) return unanswered(line, DAMAGED, error.message);
        if (!(error instanceof ApiError)) {
          console.error(`line ${line.line} of ${this.#batch.id} failed:`, error);
          return refused(line, engineError("the server made a mistake; its log tells more"));
        }
        if (error.status !== 503) return refused(line, error);
        await Bun.sleep(this.#parts.retryMs);
        if (this.#signal.aborted) return null;
      }
    }
  }

  /** Parsed body of a line. Throws LineFault if the stored bytes differ from the upload. */
  #bodyOf({ line, start, bytes, digest }: LineRecord): Readonly<Record<string, unknown>> {
    const { store, limits } = this.#parts;
    const { inputFile } = this.#batch;
    const read = store.readUpload(inputFile, start, bytes);
    if (read === null || digestOf(read) !== digest) {
      throw new LineFault(DAMAGED, `Line ${line} of ${inputFile} is not what was uploaded.`);
    }
    return parseLine(read, line, this.#form, limits).body;
  }
}

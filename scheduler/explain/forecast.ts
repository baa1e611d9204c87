import type { EngineCosts } from "../cost/cost-model.ts";

/** A sequence on an engine, as far as a forecast knows it. */
export interface SeenSequence {
  readonly id: number;
  readonly state: "waiting" | "prompt" | "answer";
  /** Precedence of its service class: lower goes first. */
  readonly precedence: number;
  /** Prompt tokens left to compute, as expected, and those that count as context. */
  readonly left: number;
  readonly context: number;
  /** Expected tokens left to draw, ≥ 1. */
  readonly answer: number;
  /** Time since its arrival. */
  readonly waitedMs: number;
}

/** An engine as its fleet sees it. */
export interface EngineOutlook {
  readonly sequences: readonly SeenSequence[];
  readonly costs: EngineCosts;
  /** Longest step beside streams, and most tokens of one. */
  readonly stepMs: number;
  readonly stepTokensMax: number;
  /** Most sequences that run, free and evictable pages, and tokens of a page. */
  readonly sequencesMax: number;
  readonly pagesAvailable: number;
  readonly pageTokens: number;
  /** Time of its last step. */
  readonly lastStepMs: number;
}

/** Forecast of one sequence. */
export interface Forecast {
  /** Sequences that will begin before it. */
  readonly position: number;
  /** Time from now to its first token, and to its end. */
  readonly firstMs: number;
  readonly endMs: number;
}

/** Steps simulated at most; longer waits are extrapolated at the same rate. */
const STEPS_MAX = 400;
/** Most chunks of prompts in all of these. */
const CHUNKS_MAX = 16_000;
/** Prompt tokens of the probe that prices one prompt token. */
const PROBE_TOKENS = 512;
/** Fewest prompt tokens of a step. */
const TOKENS_MIN = 16;

interface Prompt {
  readonly sequence: SeenSequence;
  left: number;
}

interface Answer {
  /** Number of the step after which it has ended. */
  readonly endsAt: number;
  readonly context: number;
}

/**
 * Simulates an engine ahead, roughly. Each step has all decodes and as many prompt tokens as its time allows. Waiting
 * sequences begin in order while there are slots and pages, which ended answers free. Takes at most `STEPS_MAX` steps
 * of a few predictions each, however long the queue is. Returns the forecasts of all sequences without a token;
 * with a `target`, at least that one's.
 */
export function forecastAll(outlook: EngineOutlook, target: number | null = null): Map<number, Forecast> {
  const found = new Map<number, Forecast>();
  const { sequences, costs, pageTokens, sequencesMax } = outlook;
  const waiting = byTurn(sequences.filter(({ state }) => state === "waiting"));
  const prompts: Prompt[] = sequences
    .filter(({ state }) => state === "prompt")
    .map((sequence) => ({ sequence, left: Math.max(1, sequence.left) }));
  const answers: Answer[] = sequences
    .filter(({ state }) => state === "answer")
    .map(({ answer, context }) => ({ endsAt: answer, context }))
    .sort((a, b) => a.endsAt - b.endsAt);
  let context = answers.reduce((sum, answer) => sum + answer.context, 0);
  let pages = outlook.pagesAvailable;
  let nowMs = sequences.length > 1 ? outlook.lastStepMs / 2 : 0;
  const places = new Map(waiting.map(({ id }, place) => [id, place]));
  let step = 0;
  let begun = 0;
  let chunks = 0;
  for (let round = 0; round < STEPS_MAX && chunks < CHUNKS_MAX; round++) {
    while (begun < waiting.length && prompts.length + answers.length < sequencesMax) {
      const next = waiting[begun]!;
      const needed = Math.ceil(next.left / pageTokens);
      const isAlone = prompts.length + answers.length === 0;
      if (!isAlone && needed + prompts.length + answers.length > pages) break;
      pages -= needed;
      prompts.push({ sequence: next, left: Math.max(1, next.left) });
      begun += 1;
    }
    const decodes = answers.length;
    const decodesMs = decodes === 0 ? 0 : costs.stepMs({ prompts: [], decodes, decodeContext: context });
    if (prompts.length > 0) {
      const shapes = fill(outlook, prompts, { decodes, context, decodesMs });
      chunks += shapes.length;
      nowMs += costs.stepMs({ prompts: shapes, decodes, decodeContext: context });
      step += 1;
    } else if (decodes > 0) {
      const steps = Math.max(1, answers[0]!.endsAt - step);
      nowMs += steps * decodesMs;
      step += steps;
    } else break;
    while (answers.length > 0 && answers[0]!.endsAt <= step) {
      const ended = answers.shift()!;
      context -= ended.context;
      pages += Math.ceil(ended.context / pageTokens);
    }
    while (prompts.length > 0 && prompts[0]!.left <= 0) {
      const { sequence } = prompts.shift()!;
      const position = places.get(sequence.id) ?? 0;
      found.set(sequence.id, ended(outlook, sequence, { position, firstMs: nowMs, decodes, context }));
      if (sequence.id === target) return found;
      insert(answers, { endsAt: step + sequence.answer, context: sequence.context });
      context += sequence.context;
    }
  }
  for (const [place, sequence] of waiting.entries()) {
    if (found.has(sequence.id)) continue;
    const firstMs = nowMs * Math.max(1, (place + 1) / Math.max(1, begun));
    found.set(
      sequence.id,
      ended(outlook, sequence, { position: place, firstMs, decodes: answers.length, context }),
    );
  }
  return found;
}

/** Takes tokens of prompts, in order, as the step's time allows. Returns their shapes. */
function fill(
  { costs, stepMs, stepTokensMax }: EngineOutlook,
  prompts: readonly Prompt[],
  {
    decodes,
    context,
    decodesMs,
  }: { readonly decodes: number; readonly context: number; readonly decodesMs: number },
) {
  const probe = [{ tokens: PROBE_TOKENS, context: 0 }];
  const probeMs = costs.stepMs({ prompts: probe, decodes, decodeContext: context });
  const tokenMs = Math.max(1e-9, (probeMs - decodesMs) / PROBE_TOKENS);
  const limitMs = decodes === 0 ? Number.POSITIVE_INFINITY : Math.max(stepMs, 2 * decodesMs);
  let room = Math.min(stepTokensMax, Math.max(TOKENS_MIN, (limitMs - decodesMs) / tokenMs));
  const shapes: { tokens: number; context: number }[] = [];
  for (const prompt of prompts) {
    if (room < 1) break;
    const tokens = Math.ceil(Math.min(room, prompt.left));
    shapes.push({ tokens, context: prompt.sequence.context - prompt.left });
    prompt.left -= tokens;
    room -= tokens;
  }
  return shapes;
}

function ended(
  { costs }: EngineOutlook,
  { answer, context: own }: SeenSequence,
  first: {
    readonly position: number;
    readonly firstMs: number;
    readonly decodes: number;
    readonly context: number;
  },
): Forecast {
  const { position, firstMs, decodes, context } = first;
  const decodeMs = costs.stepMs({ prompts: [], decodes: decodes + 1, decodeContext: context + own });
  return { position, firstMs, endMs: firstMs + (answer - 1) * decodeMs };
}

/** Orders waiting sequences as their turns are likely to come: by class, then by wait over cost. */
function byTurn(waiting: readonly SeenSequence[]): readonly SeenSequence[] {
  const typicalMs =
    waiting.reduce((sum, { waitedMs }) => sum + waitedMs, 0) / Math.max(1, waiting.length) + 1;
  const rank = ({ waitedMs, left }: SeenSequence): number => (waitedMs + typicalMs) / (left + TOKENS_MIN);
  return waiting.toSorted((a, b) => a.precedence - b.precedence || rank(b) - rank(a) || a.id - b.id);
}

function insert(answers: Answer[], answer: Answer): void {
  let at = answers.length;
  while (at > 0 && answers[at - 1]!.endsAt > answer.endsAt) at -= 1;
  answers.splice(at, 0, answer);
}

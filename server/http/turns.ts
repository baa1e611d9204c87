/** How long work that clients of HTTP cause goes on in one turn of the event loop. */
const SLICE_MS = 4;
/** Pieces of it that are begun in a turn when they had to wait. */
const PIECES_MAX = 16;

const waiting: (() => void)[] = [];
/** When the first piece of this turn began. */
let sinceMs: number | null = null;

/**
 * Runs `work` now if there is time left in this turn of the event loop, else after what waits already. Between two pieces, all of what the
 * first one does in microtasks ends: a client that sends much at once delays others by a slice and a piece.
 */
export function inTurn(work: () => void): void {
  if (waiting.length === 0 && hasTime()) begin(work);
  else waiting.push(work);
}

function hasTime(): boolean {
  return sinceMs === null || performance.now() - sinceMs < SLICE_MS;
}

function begin(work: () => void): void {
  if (sinceMs === null) {
    sinceMs = performance.now();
    setImmediate(newTurn);
  }
  work();
}

/** Each piece has a callback of its own, behind which its microtasks run. */
function newTurn(): void {
  sinceMs = null;
  for (let i = Math.min(PIECES_MAX, waiting.length); i > 0; i--) setImmediate(beginNext);
}

function beginNext(): void {
  if (waiting.length > 0 && hasTime()) begin(waiting.shift()!);
}

import { ApiError, badRequest } from "./errors.ts";

/** Lower bounds on the speed of a request's body. */
export interface PaceLimits {
  /** Time that a client may take before its first bytes, or be behind the least rate. */
  readonly bodyGraceMs: number;
  readonly bodyBytesPerSecondMin: number;
}

export const defaultPaceLimits: PaceLimits = Object.freeze({
  bodyGraceMs: 10_000,
  bodyBytesPerSecondMin: 16 * 1024,
});

/**
 * Yields the pieces of a body as they arrive. The client's credit of time runs down while the server waits
 * for it. Each byte adds the time it takes at the least rate, and the credit never grows beyond the grace.
 * Throws 408 for a client that is too slow, 400 for one that ends early.
 */
export async function* bodyPieces(
  request: Request,
  limits: PaceLimits,
): AsyncGenerator<Uint8Array, void, void> {
  if (request.body === null) return;
  const { bodyGraceMs, bodyBytesPerSecondMin } = limits;
  const reader = request.body.getReader();
  let creditMs = bodyGraceMs;
  try {
    for (;;) {
      const sinceMs = performance.now();
      const { done, value } = await within(creditMs, reader.read(), limits);
      if (done) return;
      const waitedMs = performance.now() - sinceMs;
      const earnedMs = (1000 * value.byteLength) / bodyBytesPerSecondMin;
      creditMs = Math.min(bodyGraceMs, creditMs - waitedMs + earnedMs);
      yield value;
    }
  } finally {
    reader.cancel().catch(() => {});
  }
}

async function within<Value>(timeMs: number, read: Promise<Value>, limits: PaceLimits): Promise<Value> {
  let timer: ReturnType<typeof setTimeout> | undefined;
  const late = new Promise<never>((_resolve, reject) => {
    timer = setTimeout(() => reject(tooSlow(limits)), Math.max(0, timeMs));
  });
  try {
    return await Promise.race([read, late]);
  } catch (error) {
    throw error instanceof ApiError ? error : badRequest("the request body ended too early");
  } finally {
    clearTimeout(timer);
  }
}

function tooSlow({ bodyGraceMs, bodyBytesPerSecondMin }: PaceLimits): ApiError {
  const message = `the request body came too slowly: at least ${bodyBytesPerSecondMin} bytes a second are expected, and a client may be ${bodyGraceMs} ms behind`;
  return new ApiError(408, "timeout_error", message, { headers: { connection: "close" } });
}

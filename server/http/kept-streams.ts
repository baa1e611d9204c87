import { ApiError } from "./errors.ts";
import { KeptStream } from "./kept-stream.ts";
import type { StreamLimits } from "./stream.ts";

/** Limits of streams that outlive their connections. */
export interface KeepLimits extends StreamLimits {
  /** Time that an answer goes on without a reader. */
  readonly readerlessMs: number;
  /** Time that the events of an answer are kept after its end. */
  readonly endedKeptMs: number;
  /** Limits of one API key: its streams, and the bytes of all their events. */
  readonly keptStreamsMax: number;
  readonly keptBytesMax: number;
}

interface KeyStreams {
  /** Streams by name, oldest first. */
  readonly byName: Map<string, KeptStream>;
  bytes: number;
}

/** Streams that outlive their connections, by key and name. */
export class KeptStreams {
  readonly #limits: KeepLimits;
  readonly #byKey = new Map<string, KeyStreams>();

  constructor(limits: KeepLimits) {
    this.#limits = limits;
  }

  /**
   * Opens a stream. It replaces one of the same name, whose answer is aborted unless a client reads it. `outlives`:
   * the answer continues without readers. Throws 429 if too many of the key's answers have not ended.
   */
  open(tenant: string, name: string, outlives = false): KeptStream {
    const own = this.#byKey.get(tenant) ?? { byName: new Map(), bytes: 0 };
    const former = own.byName.get(name);
    if (former !== undefined) {
      this.#forget(tenant, own, name, former);
      if (!former.isEnded && !former.hasReaders) former.abort();
    }
    const { keptStreamsMax, readerlessMs, endedKeptMs } = this.#limits;
    if (own.byName.size >= keptStreamsMax && !this.#forgetEnded(tenant, own)) throw tooMany(keptStreamsMax);
    const forget = (): void => this.#forget(tenant, own, name, stream);
    const stream: KeptStream = new KeptStream(this.#limits, {
      get readerlessMs() {
        if (outlives) return null;
        return own.byName.get(name) === stream ? readerlessMs : 0;
      },
      count: (bytes) => {
        own.bytes += bytes;
        if (bytes > 0) this.#makeRoom(tenant, own, stream);
      },
      ended: () => setTimeout(forget, endedKeptMs).unref(),
      forget,
    });
    own.byName.set(name, stream);
    this.#byKey.set(tenant, own);
    return stream;
  }

  /** Returns the stream; null if there is none, or it is no longer kept. */
  find(tenant: string, name: string): KeptStream | null {
    return this.#byKey.get(tenant)?.byName.get(name) ?? null;
  }

  /** Forgets the stream: only its connected readers can still read it. */
  forget(tenant: string, name: string): void {
    const own = this.#byKey.get(tenant);
    const stream = own?.byName.get(name);
    if (stream !== undefined) this.#forget(tenant, own!, name, stream);
  }

  #forget(tenant: string, own: KeyStreams, name: string, stream: KeptStream): void {
    if (own.byName.get(name) !== stream) return;
    own.byName.delete(name);
    if (own.byName.size === 0 && this.#byKey.get(tenant) === own) this.#byKey.delete(tenant);
    stream.forget();
  }

  /** Forgets the oldest stream that has ended and has no readers. Returns false if there is none. */
  #forgetEnded(tenant: string, own: KeyStreams): boolean {
    for (const [name, stream] of own.byName) {
      if (!stream.isEnded || stream.hasReaders) continue;
      this.#forget(tenant, own, name, stream);
      return true;
    }
    return false;
  }

  #makeRoom(tenant: string, own: KeyStreams, writing: KeptStream): void {
    while (own.bytes > this.#limits.keptBytesMax) {
      if (!this.#forgetEnded(tenant, own) && !writing.dropFirst()) return;
    }
  }
}

function tooMany(max: number): ApiError {
  const message = `this key has ${max} resumable streams whose answers have not ended, and more are not allowed`;
  return new ApiError(429, "rate_limit_error", message, { apiCode: "too_many_resumable_streams" });
}

import type { Pooling, TokenId } from "../base/token.ts";
import type { Constraint } from "../grammar/constraint.ts";
import {
  type AdapterId,
  chatService,
  greedySampling,
  type Sampling,
  type SequenceId,
  type SequenceSpec,
  type Service,
  type StopRule,
} from "../scheduler/core.ts";
import type { DeviceSpec } from "../scheduler/device.ts";

/** Makes a small device: 64 pages of 16 tokens, a vocabulary of 1000. */
export function deviceSpec(overrides: Partial<DeviceSpec> = {}): DeviceSpec {
  return {
    name: "simulated",
    pages: 64,
    pageTokens: 16,
    stepTokensMax: 2048,
    stepChunksMax: 256,
    contextMax: 4096,
    vocabSize: 1000,
    ...overrides,
  };
}

/** Makes greedy sampling parameters without other options. */
export function sampling(overrides: Partial<Sampling> = {}): Sampling {
  return { ...greedySampling, ...overrides };
}

/**
 * Makes a sequence without an id that generates `tokensMax` tokens after a prompt; overrides change the rest.
 */
export function sequenceSpec(
  promptTokens: ArrayLike<TokenId>,
  tokensMax: number,
  overrides: {
    sampling?: Partial<Sampling>;
    stop?: Partial<StopRule>;
    cacheSalt?: string;
    constraint?: Constraint;
    adapter?: AdapterId;
    service?: Partial<Service>;
    isHeld?: boolean;
    continues?: SequenceId;
    pooling?: Pooling;
  } = {},
): Omit<SequenceSpec, "id"> {
  const { isHeld, continues, pooling } = overrides;
  return {
    promptTokens,
    drawnTokens: [],
    sampling: sampling(overrides.sampling),
    stop: { tokensMax, tokensMin: 0, stopTokens: [], ...overrides.stop },
    cacheSalt: overrides.cacheSalt ?? "",
    ...(overrides.constraint === undefined ? {} : { constraint: overrides.constraint }),
    adapter: overrides.adapter ?? 0,
    service: { ...chatService, ...overrides.service },
    ...(pooling === undefined ? {} : { pooling }),
    ...(isHeld === undefined ? {} : { isHeld }),
    ...(continues === undefined ? {} : { continues }),
  };
}

/** `count` tokens that differ for different `first`: first, first + 1, … modulo 1000. */
export function tokensFrom(first: number, count: number): TokenId[] {
  return Array.from({ length: count }, (_, i) => (first + i) % 1000);
}

import {
  type CheckpointPolicy,
  GreedyDual,
  type PromptToSave,
  type Valued,
} from "../../scheduler/cache/checkpoints.ts";
import { KvCacheManager } from "../../scheduler/cache/kv-cache-manager.ts";
import { ours } from "../../scheduler/policies.ts";
import type { Policy } from "../../scheduler/policy.ts";

/** Checkpoints only at the ends of sequences. */
export class EndsOnly extends GreedyDual {
  override positions(): ReturnType<CheckpointPolicy["positions"]> {
    return [];
  }
}

/**
 * Checkpoints at branches and ends, and none at fixed distances before a prompt's end: Marconi's positions
 * (arXiv:2411.19379 §4.1).
 */
export class BranchesAndEnds extends GreedyDual {
  override positions(prompt: PromptToSave): ReturnType<CheckpointPolicy["positions"]> {
    return super.positions(prompt).filter(([, kind]) => kind !== "distant");
  }
}

/** Evicts the least recently used checkpoint first. */
export class RecentlyUsed extends GreedyDual {
  #uses = 0;

  override get now(): number {
    return this.#uses + 1;
  }

  override used(): number {
    this.#uses += 1;
    return this.#uses;
  }

  override worth({ usedAt }: Valued): number {
    return usedAt;
  }

  override evicted(): void {}
}

/** Our policy with another checkpoint policy. */
export function withCheckpoints(name: string, open: () => CheckpointPolicy): Policy {
  return {
    ...ours(),
    name,
    cache: {
      kind: "baseline",
      open: (spec, epoch, costs) => new KvCacheManager(spec, epoch, costs, { checkpoints: open() }),
    },
  };
}

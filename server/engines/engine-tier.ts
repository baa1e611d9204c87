import { type HostCounts, HostTier } from "../../scheduler/cache/host-tier.ts";
import type { LowerTier } from "../../scheduler/cache/lower-tier.ts";
import { DiskTier } from "../kv-disk/disk-tier.ts";
import { PageIds } from "../kv-disk/page-ids.ts";
import type { StoreCounts } from "../kv-disk/store-counts.ts";
import { NativePlaces } from "../kv-host/native-places.ts";
import type { EngineStart } from "./protocol.ts";

/** Lower KV cache tiers of an engine, on its thread: host memory, disk, or host memory above the disk. */
export interface EngineTier {
  readonly tier: LowerTier;
  /** Attaches the device that holds the pages. Throws NativeError if the host memory cannot be allocated. */
  attach(device: EngineMemory): void;
  /** Handles the replies of the tiers' threads. */
  receive(): void;
  /** Ends the threads. Call it before the device is closed. */
  close(): void;
}

type EngineMemory = Parameters<DiskTier["attach"]>[0] & Parameters<NativePlaces["attach"]>[0];

/** Receives counts since the last call of the same kind. */
export interface TierEvents {
  onDisk(counts: Readonly<StoreCounts>): void;
  onHost(counts: Readonly<HostCounts>): void;
}

/** Minimum interval between two calls of `onHost`. */
const COUNT_MS = 1000;

/** Starts the tiers' threads, which initialise while the engine loads; null if no tier is configured. */
export function openTier(
  { setup: { device }, engine, doorbell }: Pick<EngineStart, "setup" | "engine" | "doorbell">,
  { onDisk, onHost }: TierEvents,
): EngineTier | null {
  if (device.kind === "simulated") return null;
  const { disk: diskSetup, host: hostSetup } = device;
  const disk = diskSetup ? new DiskTier(diskSetup, engine, doorbell, onDisk) : null;
  if (!hostSetup) return disk === null ? null : alone(disk);
  const places = new NativePlaces(hostSetup, engine, doorbell);
  // Without a disk the ids stay in this process, so they need neither identity nor secret.
  const ids = disk?.ids ?? new PageIds("", hostSetup.pageTokens, null);
  const tier = new HostTier(places, ids, disk);
  let told = tier.counts;
  let toldMs = Number.NEGATIVE_INFINITY;
  return {
    tier,
    attach: (device) => {
      places.attach(device);
      disk?.attach(device);
    },
    receive: () => {
      disk?.receive();
      places.receive();
      const nowMs = performance.now();
      if (nowMs - toldMs < COUNT_MS) return;
      toldMs = nowMs;
      const { stored, read, dropped } = tier.counts;
      const counts = {
        stored: stored - told.stored,
        read: read - told.read,
        dropped: dropped - told.dropped,
      };
      told = { stored, read, dropped };
      if (counts.stored + counts.read + counts.dropped > 0) onHost(counts);
    },
    close: () => {
      disk?.close(); // its thread reads host memory
      places.close();
    },
  };
}

function alone(disk: DiskTier): EngineTier {
  return {
    tier: disk,
    attach: (device) => disk.attach(device),
    receive: () => disk.receive(),
    close: () => disk.close(),
  };
}

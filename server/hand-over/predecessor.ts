import { type Config, ConfigError } from "../config.ts";
import { closeDescriptor, copyDescriptor } from "./descriptors.ts";
import { doorPath, type SocketPlace } from "./door.ts";

/** Server that has the address now, and hands it over. */
export interface Predecessor {
  readonly pid: number;
  /** Copy of its listening socket: connections wait there until one of the two accepts them. */
  readonly descriptor: number;
  /** Resolves when it accepts no connections any more and has closed the stores of its data folder. */
  release(): Promise<void>;
  /** Leaves the address to it. */
  leave(): void;
}

/**
 * Finds the Bunting server of this user that listens on the configured address; null if there is none. Throws
 * ConfigError if its socket cannot be copied.
 */
export async function findPredecessor({
  host,
  port,
}: Pick<Config, "host" | "port">): Promise<Predecessor | null> {
  const path = pathOf(host, port);
  if (path === null) return null;
  const ask = (name: string, body: object): Promise<Response> =>
    fetch(`http://bunting/${name}`, {
      method: "POST",
      unix: path,
      body: JSON.stringify(body),
      keepalive: false,
    });
  let place: SocketPlace;
  try {
    place = (await (await ask("socket", { pid: process.pid })).json()) as SocketPlace;
  } catch {
    return null; // nobody listens there
  }
  const { pid } = place;
  const descriptor = copyDescriptor(pid, place.descriptor);
  if (descriptor === null) {
    throw new ConfigError(
      `--take-over: the socket of process ${pid} on ${host}:${port} cannot be copied; that takes Linux 5.6 and the same user and container.`,
    );
  }
  return {
    pid,
    descriptor,
    async release() {
      try {
        await ask("release", {});
      } catch {
        // It has ended by itself, and its files are free.
      }
    },
    leave: () => closeDescriptor(descriptor),
  };
}

function pathOf(host: string, port: number): string | null {
  try {
    return port === 0 ? null : doorPath(host, port);
  } catch {
    return null;
  }
}

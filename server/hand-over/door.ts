import { renameSync, rmSync } from "node:fs";
import { isAbsolute, join } from "node:path";
import { ownFolder } from "../own-files.ts";
import { allowCopies } from "./descriptors.ts";

/** Longest path of a Unix socket, less the ending null and the number of a process. */
const SOCKET_PATH_MAX = 107 - ".4194304".length;

/** Answer to a successor that asks for the listening socket. */
export interface SocketPlace {
  readonly pid: number;
  readonly descriptor: number;
}

/**
 * Path of the Unix socket on which the server of an address speaks to its successor, in a folder that only
 * this user can enter; null if there is no place for it. Throws for a folder that belongs to somebody else.
 */
export function doorPath(host: string, port: number): string | null {
  const { XDG_RUNTIME_DIR: runtime = "" } = process.env;
  const user = process.getuid?.();
  if (user === undefined) return null;
  const folder = isAbsolute(runtime) ? join(runtime, "bunting") : join("/tmp", `bunting-${user}`);
  ownFolder(folder);
  const path = join(folder, `${encodeURIComponent(host)}-${port}.sock`);
  return path.length > SOCKET_PATH_MAX ? null : path;
}

/**
 * Door for the successor of this server: another process of this user that will listen on the same socket.
 * It first copies the socket's descriptor, and when it is ready to serve asks this server to release the rest.
 */
export class HandOverDoor {
  readonly #path: string;
  readonly #server: Bun.Server<undefined>;

  private constructor(path: string, descriptor: number, release: () => Promise<void>) {
    this.#path = path;
    let releasing: Promise<void> | null = null;
    // Bun removes the path that it bound when it stops; by then the other path may be the successor's.
    const bound = `${path}.${process.pid}`;
    this.#server = Bun.serve({
      unix: bound,
      routes: {
        "/socket": {
          POST: async (request) => {
            const { pid } = (await request.json()) as { readonly pid: number };
            allowCopies(pid);
            return Response.json({ pid: process.pid, descriptor } satisfies SocketPlace);
          },
        },
        "/release": {
          POST: async () => {
            releasing ??= release();
            await releasing;
            return new Response(null, { status: 204 });
          },
        },
      },
      fetch: () => new Response(null, { status: 404 }),
    });
    renameSync(bound, path);
  }

  /** Opens the door of an address that this process listens on; null if this system has no place for one. */
  static open(
    host: string,
    port: number,
    descriptor: number,
    release: () => Promise<void>,
  ): HandOverDoor | null {
    if (process.platform !== "linux") return null;
    try {
      const path = doorPath(host, port);
      if (path === null) return null;
      return new HandOverDoor(path, descriptor, release);
    } catch {
      return null;
    }
  }

  /** Closes the door. The path may be the successor's by now, if this server `isReleased`. */
  async close(isReleased: boolean): Promise<void> {
    await this.#server.stop(true);
    if (!isReleased) rmSync(this.#path, { force: true });
  }
}

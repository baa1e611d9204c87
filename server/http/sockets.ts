/** Linux's sockets of this process, of which Bun tells no descriptor: found by their ports. */

import { dlopen } from "bun:ffi";
import { readdirSync } from "node:fs";

/** From Linux's headers. */
const SOL_SOCKET = 1;
const SO_ACCEPTCONN = 30;
export const IPPROTO_TCP = 6;
const SOCKADDR_BYTES = 128;

export class Sockets {
  readonly #libc: ReturnType<typeof openLibc>;
  readonly #address = new Uint8Array(new ArrayBuffer(SOCKADDR_BYTES));
  readonly #size = new Uint32Array(new ArrayBuffer(4));

  private constructor(libc: ReturnType<typeof openLibc>) {
    this.#libc = libc;
  }

  /** null: this is not Linux, or has another C library. */
  static open(): Sockets | null {
    if (process.platform !== "linux") return null;
    try {
      return new Sockets(openLibc());
    } catch {
      return null;
    }
  }

  /** What is open, of whatever kind. */
  descriptors(): readonly number[] {
    return readdirSync("/proc/self/fd").map(Number);
  }

  isListening(fd: number): boolean {
    const value = new Int32Array(new ArrayBuffer(4));
    return this.getOption(fd, SOL_SOCKET, SO_ACCEPTCONN, value) && value[0] === 1;
  }

  /** The socket's own port; null: it has none. */
  port(fd: number): number | null {
    this.#size[0] = SOCKADDR_BYTES;
    return this.#libc.getsockname(fd, this.#address, this.#size) === 0 ? this.#readPort() : null;
  }

  /** The port at the other end; null: it is not connected. */
  peerPort(fd: number): number | null {
    this.#size[0] = SOCKADDR_BYTES;
    return this.#libc.getpeername(fd, this.#address, this.#size) === 0 ? this.#readPort() : null;
  }

  /** Fills `value`; false: the option is not there, or shorter. */
  getOption(fd: number, level: number, option: number, value: Int32Array<ArrayBuffer>): boolean {
    this.#size[0] = value.byteLength;
    const result = this.#libc.getsockopt(fd, level, option, value, this.#size);
    return result === 0 && this.#size[0] === value.byteLength;
  }

  setOption(fd: number, level: number, option: number, value: Int32Array<ArrayBuffer>): boolean {
    return this.#libc.setsockopt(fd, level, option, value, value.byteLength) === 0;
  }

  /** In versions 4 and 6 at the same place. */
  #readPort(): number {
    return this.#address[2]! * 256 + this.#address[3]!;
  }
}

function openLibc() {
  const { symbols } = dlopen("libc.so.6", {
    getsockopt: { args: ["i32", "i32", "i32", "ptr", "ptr"], returns: "i32" },
    setsockopt: { args: ["i32", "i32", "i32", "ptr", "u32"], returns: "i32" },
    getsockname: { args: ["i32", "ptr", "ptr"], returns: "i32" },
    getpeername: { args: ["i32", "ptr", "ptr"], returns: "i32" },
  });
  return symbols;
}

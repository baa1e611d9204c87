/**
 * A bound on what the kernel takes from us for a client that does not read. Without one, Linux takes 2.6 MB of each stream before
 * a write reports that it waits: some 11,000 tokens that are computed for nobody. The option of the listening socket holds for
 * every connection that it accepts.
 */

import { dlopen } from "bun:ffi";
import { readdirSync } from "node:fs";

/** Bytes of a connection that may wait in the kernel to be sent. What was sent and is not acknowledged does not count, so that
 *  the throughput of long distances stays. */
const UNSENT_BYTES_MAX = 16 * 1024;

/** From Linux's headers. */
const SOL_SOCKET = 1;
const SO_ACCEPTCONN = 30;
const IPPROTO_TCP = 6;
const TCP_NOTSENT_LOWAT = 25;
const SOCKADDR_BYTES = 128;

/** Bounds the connections of this process's listening socket on the port. False: this system does not offer it. */
export function limitUnsent(port: number): boolean {
  if (process.platform !== "linux") return false;
  let libc: ReturnType<typeof openLibc>;
  try {
    libc = openLibc();
  } catch {
    return false; // another C library
  }
  // Bun does not tell the descriptor of a server's socket.
  const descriptors = readdirSync("/proc/self/fd").map(Number);
  const found = descriptors.filter((fd) => isListening(libc, fd) && portOf(libc, fd) === port);
  const value = new Int32Array(new ArrayBuffer(4)).fill(UNSENT_BYTES_MAX);
  const results = found.map((fd) => libc.setsockopt(fd, IPPROTO_TCP, TCP_NOTSENT_LOWAT, value, 4));
  return results.length > 0 && results.every((result) => result === 0);
}

function openLibc() {
  const { symbols } = dlopen("libc.so.6", {
    getsockopt: { args: ["i32", "i32", "i32", "ptr", "ptr"], returns: "i32" },
    setsockopt: { args: ["i32", "i32", "i32", "ptr", "u32"], returns: "i32" },
    getsockname: { args: ["i32", "ptr", "ptr"], returns: "i32" },
  });
  return symbols;
}

function isListening(libc: ReturnType<typeof openLibc>, fd: number): boolean {
  const value = new Int32Array(new ArrayBuffer(4));
  const size = new Uint32Array(new ArrayBuffer(4)).fill(4);
  return libc.getsockopt(fd, SOL_SOCKET, SO_ACCEPTCONN, value, size) === 0 && value[0] === 1;
}

/** Of the socket's own address, in version 4 and 6 at the same place; null: it has none. */
function portOf(libc: ReturnType<typeof openLibc>, fd: number): number | null {
  const address = new Uint8Array(new ArrayBuffer(SOCKADDR_BYTES));
  const size = new Uint32Array(new ArrayBuffer(4)).fill(SOCKADDR_BYTES);
  if (libc.getsockname(fd, address, size) !== 0) return null;
  return address[2]! * 256 + address[3]!;
}

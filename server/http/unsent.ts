/**
 * Limits the kernel's send buffer for a client that does not read. Without a limit, Linux accepts megabytes
 * of each stream before a write reports back pressure: the engine would compute all those tokens for nobody.
 * The option of the listening socket holds for every connection that it accepts.
 */

import { dlopen } from "bun:ffi";
import { readdirSync } from "node:fs";

/**
 * Bytes of a connection that may wait in the kernel to be sent. Sent but unacknowledged bytes do not count,
 * so that throughput over long distances stays.
 */
const UNSENT_BYTES_MAX = 16 * 1024;

/** From Linux's headers. */
const SOL_SOCKET = 1;
const SO_ACCEPTCONN = 30;
const IPPROTO_TCP = 6;
const TCP_NOTSENT_LOWAT = 25;
const SOCKADDR_BYTES = 128;

/**
 * Limits the connections of this process's listening socket on the port. Returns false if this system cannot.
 */
export function limitUnsent(port: number): boolean {
  if (process.platform !== "linux") return false;
  let libc: ReturnType<typeof openLibc>;
  try {
    libc = openLibc();
  } catch {
    return false; // another C library
  }
  // Bun does not expose the descriptor of a server's socket.
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

/** Port of the socket's own address, at the same place for IPv4 and IPv6; null if it has none. */
function portOf(libc: ReturnType<typeof openLibc>, fd: number): number | null {
  const address = new Uint8Array(new ArrayBuffer(SOCKADDR_BYTES));
  const size = new Uint32Array(new ArrayBuffer(4)).fill(SOCKADDR_BYTES);
  if (libc.getsockname(fd, address, size) !== 0) return null;
  return address[2]! * 256 + address[3]!;
}

/**
 * A bound on what the kernel takes from us for a client that does not read. Without one, Linux takes 2.6 MB of each stream before
 * a write reports that it waits: some 11,000 tokens that are computed for nobody. The option of the listening socket holds for
 * every connection that it accepts.
 */

import { IPPROTO_TCP, Sockets } from "./sockets.ts";

/** Bytes of a connection that may wait in the kernel to be sent. What was sent and is not acknowledged does not count, so that
 *  the throughput of long distances stays. */
const UNSENT_BYTES_MAX = 16 * 1024;

/** From Linux's headers. */
const TCP_NOTSENT_LOWAT = 25;

/** Bounds the connections of this process's listening socket on the port. False: this system does not offer it. */
export function limitUnsent(port: number): boolean {
  const sockets = Sockets.open();
  if (sockets === null) return false;
  const found = sockets.descriptors().filter((fd) => sockets.isListening(fd) && sockets.port(fd) === port);
  const value = new Int32Array(new ArrayBuffer(4)).fill(UNSENT_BYTES_MAX);
  const results = found.map((fd) => sockets.setOption(fd, IPPROTO_TCP, TCP_NOTSENT_LOWAT, value));
  return results.length > 0 && results.every((isSet) => isSet);
}

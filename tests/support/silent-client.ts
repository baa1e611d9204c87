/** A client that never reads. Bun's own sockets read ahead, also when they are paused. Linux. */

import { dlopen } from "bun:ffi";

const AF_INET = 2;
const SOCK_STREAM = 1;
const MSG_NOSIGNAL = 0x4000;

const libc =
  process.platform === "linux"
    ? dlopen("libc.so.6", {
        socket: { args: ["i32", "i32", "i32"], returns: "i32" },
        connect: { args: ["i32", "ptr", "u32"], returns: "i32" },
        send: { args: ["i32", "ptr", "u64", "i32"], returns: "i64" },
        close: { args: ["i32"], returns: "i32" },
      }).symbols
    : null;

/** Posts JSON to this port of this machine, and returns what ends the connection. */
export function postAndNeverRead(port: number, path: string, json: object): () => void {
  const text = JSON.stringify(json);
  const head = `POST ${path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nConnection: close\r\n`;
  const bytes = Buffer.from(`${head}Content-Length: ${Buffer.byteLength(text)}\r\n\r\n${text}`);
  const address = new Uint8Array([AF_INET, 0, port >> 8, port & 255, 127, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0]);
  const fd = libc!.socket(AF_INET, SOCK_STREAM, 0);
  const isSent =
    fd >= 0 &&
    libc!.connect(fd, address, address.length) === 0 &&
    Number(libc!.send(fd, bytes, bytes.length, MSG_NOSIGNAL)) === bytes.length;
  if (!isSent) throw new Error("the request could not be sent");
  return () => void libc!.close(fd);
}

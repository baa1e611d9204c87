/** Copies of descriptors between processes of one user (Linux 5.6 and later). */

import { dlopen } from "bun:ffi";

/** Numbers of system calls, the same on x86-64 and arm64. */
const PIDFD_OPEN = 434n;
const PIDFD_GETFD = 438n;
const PR_SET_PTRACER = 0x59616d61;

interface Libc {
  syscall(number: bigint, a: bigint, b: bigint, c: bigint): bigint;
  prctl(option: number, pid: bigint, b: bigint, c: bigint, d: bigint): number;
  close(descriptor: number): number;
}

/** Copies a descriptor of another process; null if the system does not allow it. */
export function copyDescriptor(pid: number, descriptor: number): number | null {
  const libc = openLibc();
  if (libc === null) return null;
  const other = Number(libc.syscall(PIDFD_OPEN, BigInt(pid), 0n, 0n));
  if (other < 0) return null;
  const copy = Number(libc.syscall(PIDFD_GETFD, BigInt(other), BigInt(descriptor), 0n));
  libc.close(other);
  return copy < 0 ? null : copy;
}

/** Lets another process of this user copy descriptors of this one, where the system asks for consent (Yama). */
export function allowCopies(pid: number): void {
  openLibc()?.prctl(PR_SET_PTRACER, BigInt(pid), 0n, 0n, 0n);
}

export function closeDescriptor(descriptor: number): void {
  openLibc()?.close(descriptor);
}

function openLibc(): Libc | null {
  if (process.platform !== "linux") return null;
  const arch = process.arch === "arm64" ? "aarch64" : "x86_64";
  for (const library of ["libc.so.6", `libc.musl-${arch}.so.1`]) {
    try {
      return dlopen(library, {
        syscall: { args: ["i64", "i64", "i64", "i64"], returns: "i64" },
        prctl: { args: ["i32", "u64", "u64", "u64", "u64"], returns: "i32" },
        close: { args: ["i32"], returns: "i32" },
      }).symbols as unknown as Libc;
    } catch {
      // another C library
    }
  }
  return null;
}

/** A server in a process of its own, to be killed: `bun crash-process.ts <folder>` prints where it listens. */

import { startTestServer } from "./server.ts";

const server = startTestServer({ data: process.argv[2]!, stepMs: 0 });
console.log(server.origin);

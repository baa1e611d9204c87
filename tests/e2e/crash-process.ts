/**
 * Server in a separate process, for tests that kill it: `bun crash-process.ts <folder>` prints its address.
 */

import { startTestServer } from "./server.ts";

const server = startTestServer({ data: process.argv[2]!, stepMs: 0 });
console.log(server.origin);

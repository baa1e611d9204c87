/** Recording of a simulated server. */
import { ours } from "../../scheduler/policies.ts";
import { devicesNamed } from "../../server/cli/simulate/what-if.ts";
import { RecordingWriter } from "../../server/recording/file.ts";
import { simulate } from "../../simulation/simulator.ts";
import { chatLengths, chatWorkload } from "../../simulation/workloads/chat.ts";

/** Records chats, more a second than one engine can answer soon. */
export function recordChats(path: string, calls: number): void {
  const writer = new RecordingWriter(path);
  simulate({
    workload: chatWorkload(chatLengths(calls, 1), { seed: 1, callsPerSecond: 12, calls }),
    policy: ours(),
    devices: devicesNamed("a100"),
    seed: 1,
    record: (entry) => writer.write(entry),
  });
  writer.close();
}

/** What any single policy reaches, and what those pay whose first tokens are sooner than ours. */

import { type Configuration, traitsOf } from "./configuration.ts";
import { type Figures, timesWorse } from "./figures.ts";
import { judged, LOSS_RATIO, markdown, percent, shareOf, times } from "./judged.ts";
import { bestRival, meanRatio, ratioOf, type Trial } from "./trial.ts";

const OURS = "ours";
const wanted = judged.filter(({ most }) => most !== null);

/** Every policy of a trial by name, ours among them. */
function policiesOf({ ours, rivals }: Trial): Readonly<Record<string, Figures>> {
  return { [OURS]: ours, ...rivals };
}

/** Whether a policy is more than 10 % worse than the best of all others. */
function isWorse(trial: Trial, name: string, figure: keyof Figures): boolean {
  const policies = policiesOf(trial);
  return Object.keys(policies).some(
    (other) => other !== name && timesWorse(figure, policies[name]!, policies[other]!) > LOSS_RATIO,
  );
}

/** What is known of a configuration before it is run: its engines, what is shared, its load, and how long answers are. */
function classOf(configuration: Configuration): string {
  const traits = traitsOf(configuration);
  return [1, 2, 4, 5].map((aspect) => traits[aspect]!).join("; ");
}

/** For each trial the policy of these names that is behind in first tokens least often in the *other* trials of its class; of several the
 *  one that is so in all trials. */
function chosenBefore(trials: readonly Trial[], names: readonly string[]): Map<Trial, string> {
  const behind = new Map(
    trials.map((trial) => [trial, names.map((name) => Number(isWorse(trial, name, "ttftMeanMs")))]),
  );
  const sums = (some: readonly Trial[]): number[] =>
    names.map((_, at) => some.reduce((sum, trial) => sum + behind.get(trial)![at]!, 0));
  const all = sums(trials);
  const chosen = new Map<Trial, string>();
  for (const alike of Map.groupBy(trials, ({ configuration }) => classOf(configuration)).values()) {
    const inClass = sums(alike);
    for (const trial of alike) {
      const scores = names.map(
        (_, at) => inClass[at]! - behind.get(trial)![at]! + all[at]! / (trials.length + 1),
      );
      chosen.set(trial, names[scores.indexOf(Math.min(...scores))]!);
    }
  }
  return chosen;
}

/** Each policy against the best of all others: whether any reaches what is wanted of ours, and what it has in mean latency. */
export function singles(trials: readonly Trial[]): string {
  const names = Object.keys(policiesOf(trials[0]!));
  const of = chosenBefore(trials, names);
  const ofRivals = chosenBefore(trials, names.slice(1));
  const choices: readonly { readonly name: string; readonly choose: (trial: Trial) => string }[] = [
    ...names.map((name) => ({ name, choose: () => name })),
    { name: "for first tokens by class, of all", choose: (trial) => of.get(trial)! },
    { name: "for first tokens by class, of the rivals", choose: (trial) => ofRivals.get(trial)! },
    {
      name: "for first tokens by the outcome, of the rivals",
      choose: (trial) => bestRival(trial, "ttftMeanMs")!.name,
    },
  ];
  const rows = choices.map(({ name, choose }) => ({
    name,
    mean: meanRatio(
      trials,
      (trial) => policiesOf(trial)[choose(trial)]!.latencyMeanMs / trial.ours.latencyMeanMs,
    ),
    behind: wanted.map(({ figure }) => shareOf(trials, (trial) => isWorse(trial, choose(trial), figure))),
  }));
  const lines = rows.map(({ name, mean, behind }) => [name, ...behind.map(percent), times(mean)]);
  const head = ["Policy", ...wanted.map(({ name }) => name), "its mean latency over ours"];
  const ofFirst = wanted.findIndex(({ figure }) => figure === "ttftMeanMs");
  const least = rows
    .slice(1, names.length)
    .reduce((a, b) => (b.behind[ofFirst]! < a.behind[ofFirst]! ? b : a));
  return [
    "**Each policy more than 10 % worse than the best of all others, ours among them**",
    markdown(head, lines),
    `Of the rivals ${least.name} is behind in first tokens least often, in ${percent(least.behind[ofFirst]!)} of the configurations (ours in
${percent(rows[0]!.behind[ofFirst]!)}), and has ${times(least.mean)} ours' mean latency. The last three choose for each configuration: by what is behind
least often in other configurations with as many engines, as much shared, such a load and such answers, as a server could that knew all this
beforehand; and by the outcome, which nobody knows.`,
  ].join("\n\n");
}

/** Where ours is behind in first tokens: who is ahead, by how much, and what that rival has of the rest. */
export function soonest(trials: readonly Trial[]): string {
  const behind = trials.filter((trial) => ratioOf(trial, "ttftMeanMs") > LOSS_RATIO);
  if (behind.length === 0) return "";
  const best = (trial: Trial): Figures => bestRival(trial, "ttftMeanMs")!.figures;
  const figures = ["latencyMeanMs", "latencyP99Ms", "tbtP99Ms", "ttftMeanMs"] as const;
  // Where all answers have one token there is no time between tokens.
  const row = (name: string, some: readonly Trial[]): string[] => [
    name,
    `${some.length}`,
    ...figures.map((figure) => {
      const there = some.filter((trial) => trial.ours[figure] > 0 && best(trial)[figure] > 0);
      return times(meanRatio(there, (trial) => best(trial)[figure] / trial.ours[figure]));
    }),
  ];
  const groups = [...Map.groupBy(behind, (trial) => bestRival(trial, "ttftMeanMs")!.name)];
  const lines = groups.sort((a, b) => b[1].length - a[1].length).map(([name, some]) => row(name, some));
  const head = [
    "Ahead in first tokens",
    "configurations",
    "its mean latency",
    "P99 latency",
    "P99 gap",
    "first token",
  ];
  const late = behind.map((trial) => trial.ours.ttftMeanMs - best(trial).ttftMeanMs);
  const share = behind.map((trial, index) => late[index]! / trial.ours.latencyMeanMs);
  return [
    "**Where ours is more than 10 % behind in first tokens: of ours the rival that is ahead has**",
    markdown(head, [row("any", behind), ...lines]),
    `The median of those first tokens is ${median(late).toFixed(0)} ms later than that rival's, ${percent(median(share))} of ours' mean latency.`,
  ].join("\n\n");
}

function median(numbers: readonly number[]): number {
  return numbers.toSorted((a, b) => a - b)[Math.floor(numbers.length / 2)]!;
}

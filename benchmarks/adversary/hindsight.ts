/** Other settings of ours, and how little any choice among them could lose that knew the outcome: what the policy's own parts allow. */

import { servedAdmission } from "../../scheduler/engine/admission-rule.ts";
import { ours } from "../../scheduler/policies.ts";
import type { BatchPolicy, Policy } from "../../scheduler/policy.ts";
import { plainAdmission } from "../../simulation/baselines/engine-rules.ts";
import { withChanges } from "../../simulation/baselines/policies.ts";
import { staticBudget } from "../../simulation/baselines/static-budget.ts";
import { firstCome, promptsFirst } from "../../simulation/baselines/vllm.ts";
import type { Figures } from "./figures.ts";
import { judged, LOSS_RATIO, markdown, percent, shareOf, times } from "./judged.ts";
import { losesLeast, meanRatio, ratioOf, type Trial } from "./trial.ts";

const own = ours();

/** How large steps are: as served, for shorter and longer times, for fixed numbers of tokens, and whole prompts before any decode. */
const steps: readonly (readonly [name: string, batch: BatchPolicy])[] = [
  ["100 ms", own.batch],
  ["50 ms", { ...own.batch, stepMs: 50 }],
  ["400 ms", { ...own.batch, stepMs: 400 }],
  ...[256, 512, 2048].map((tokens) => [`${tokens} tokens`, staticBudget(tokens)] as const),
  ["whole prompts first", promptsFirst(8192)],
];
const { promptOrder, overtakable } = plainAdmission;
const inOrder = { ...own.admission, rule: { ...servedAdmission, promptOrder, overtakable } };

/** Steps that are tried in order of arrival as well. */
const inOrderToo = new Set(["100 ms", "512 tokens", "2048 tokens"]);

/** Placement, cache and admission of ours with every size of steps, by the ratio of wait to cost and in order of arrival. What serves is not
 *  among them. */
export const settings: readonly Policy[] = [
  ...steps.slice(1).map(([name, batch]) => withChanges(own, name, { batch })),
  withChanges(own, "100 ms, begun prompts first", { admission: inOrder }),
  ...steps
    .filter(([name]) => inOrderToo.has(name))
    .map(([name, batch]) =>
      withChanges(own, `${name}, in order of arrival`, { batch, queue: firstCome, admission: inOrder }),
    ),
];

const wanted = judged.filter(({ most }) => most !== null);
const RATIO_MAX = 1.5;

/** Of the trials that have other settings. Empty: none has. */
export function hindsight(all: readonly Trial[]): string {
  const trials = all.filter((trial) => trial.settings !== undefined);
  if (trials.length === 0) return "";
  const settingsOf = ({ ours, settings }: Trial): Figures[] => [ours, ...Object.values(settings!)];
  const least = (trial: Trial, figure: keyof Figures): Figures =>
    settingsOf(trial).reduce((a, b) => (b[figure] < a[figure] ? b : a));
  const choices: readonly (readonly [name: string, of: (trial: Trial) => Figures])[] = [
    ["ours", ({ ours }) => ours],
    ...Object.keys(trials[0]!.settings!).map(
      (name) => [name, ({ settings }: Trial) => settings![name]!] as const,
    ),
    ...wanted.map(
      ({ figure, name }) =>
        [
          `of each configuration the one with the least ${name}`,
          (trial: Trial) => least(trial, figure),
        ] as const,
    ),
    ["of each configuration the one that loses least", (trial) => losesLeast(trial, settingsOf(trial))],
    [
      "the same, or a rival",
      (trial) => losesLeast(trial, [...settingsOf(trial), ...Object.values(trial.rivals)]),
    ],
  ];
  const lines = choices.map(([name, of]) => {
    const ratios = trials.map((trial) =>
      wanted.map(({ figure }) => ratioOf({ ...trial, ours: of(trial) }, figure)),
    );
    return [
      name,
      ...wanted.map((_, at) => percent(shareOf(ratios, (each) => each[at]! > LOSS_RATIO))),
      percent(shareOf(ratios, (each) => each.some((ratio) => ratio > LOSS_RATIO))),
      percent(shareOf(ratios, (each) => each.some((ratio) => ratio > RATIO_MAX))),
      times(meanRatio(trials, (trial) => of(trial).latencyMeanMs / trial.ours.latencyMeanMs)),
    ];
  });
  const head = [
    "Setting",
    ...wanted.map(({ name }) => name),
    "any of them",
    `any more than ${RATIO_MAX}×`,
    "its mean latency over ours",
  ];
  return [
    `**Other settings of ours, more than 10 % worse than the best rival: the first ${trials.length} configurations**`,
    markdown(head, lines),
  ].join("\n\n");
}

/** What a search found, in Markdown. */

import { type Configuration, idOf, traitsOf } from "./configuration.ts";
import { type Figures, shownFigure, timesWorse } from "./figures.ts";
import { hindsight } from "./hindsight.ts";
import { judged, LOSS_RATIO, markdown, percent, shareOf, times } from "./judged.ts";
import { singles, soonest } from "./others.ts";
import { bestRival, losesLeast, ratioOf, type Trial } from "./trial.ts";

/** Nothing is to be worse than this. */
const RATIO_MAX = 1.5;
const BETTER_SHARE_MIN = 0.5;
const WORST_SHOWN = 12;

/** Shares of trials in which ours loses, by figure, and everything behind them. */
export function summaryOf(trials: readonly Trial[], seed: number): string {
  return [
    `${trials.length} configurations of seed ${seed}.`,
    ...[losses(trials), bounds(trials), hindsight(trials), singles(trials), soonest(trials)],
    ...[extremes(trials), prices(trials), byRival(trials), byTrait(trials)],
    ...judged.map(({ figure, name }) => worst(trials, figure, name)),
  ]
    .filter((part) => part !== "")
    .join("\n\n");
}

function losses(trials: readonly Trial[]): string {
  const lines = judged.map(({ figure, name, most }) => {
    const ratios = trials.map((trial) => ratioOf(trial, figure)).sort((a, b) => a - b);
    const share = shareOf(ratios, (ratio) => ratio > LOSS_RATIO);
    const worstRatio = ratios.at(-1)!;
    const isMet = most === null ? "" : share <= most && worstRatio <= RATIO_MAX ? "yes" : "**no**";
    const wanted = most === null ? "" : `≤ ${percent(most)}, ≤ ${RATIO_MAX}×`;
    const median = ratios[Math.floor(ratios.length / 2)]!;
    return [name, percent(share), times(worstRatio), times(median), wanted, isMet];
  });
  const head = ["Figure", "more than 10 % worse", "worst", "median", "wanted", "met"];
  return `**Ours against the best rival of each single configuration**\n\n${markdown(head, lines)}`;
}

/** How often each rival itself, and a chooser that may pick another rival for each configuration, is worse than the best rival: what can
 *  be asked of one policy. The one that picks the rival that loses least shows how far the aims contradict each other. */
function bounds(trials: readonly Trial[]): string {
  const picks = judged.map(({ figure, name }) => ({
    name: `of each configuration the rival that is best in ${name}`,
    of: (trial: Trial): Figures => bestRival(trial, figure)!.figures,
  }));
  const each = Object.keys(trials[0]!.rivals).map((name) => ({
    name,
    of: ({ rivals }: Trial): Figures => rivals[name]!,
  }));
  const sharesOf = (of: (trial: Trial) => Figures): number[] =>
    judged.map(({ figure }) =>
      shareOf(trials, (trial) => ratioOf({ ...trial, ours: of(trial) }, figure) > LOSS_RATIO),
    );
  const fewest = {
    name: "of each configuration the policy that loses least, ours included",
    of: (trial: Trial) => losesLeast(trial, [trial.ours, ...Object.values(trial.rivals)]),
  };
  const own = { name: "ours", of: ({ ours }: Trial): Figures => ours };
  const rows = [own, ...picks, fewest, ...each].map(({ name, of }) => ({ name, shares: sharesOf(of) }));
  const ofEach = rows.slice(-each.length);
  const leastRow = judged.map((_, index) => Math.min(...ofEach.map(({ shares }) => shares[index]!)));
  const lines = [...rows, { name: "the least that one rival reaches", shares: leastRow }].map(
    ({ name, shares }) => [name, ...shares.map(percent)],
  );
  const head = ["", ...judged.map(({ name }) => name)];
  const wanted = judged.reduce((sum, { most }) => sum + (most ?? 0), 0);
  const together = rows
    .find(({ name }) => name === fewest.name)!
    .shares.reduce((sum, share, index) => sum + (judged[index]!.most === null ? 0 : share), 0);
  return [
    "**More than 10 % worse than the best rival of each configuration: ours, and the rivals themselves**",
    markdown(head, lines),
    `What is wanted of mean, P99 and first token together is ${percent(wanted)} of the configurations. A server that knew the
outcome and could pick a policy of the list, ours included, for each configuration would lose in no less than
${percent(together)} together: there no policy has all three.`,
  ].join("\n\n");
}

/** Where ours is beyond `RATIO_MAX`: whether any policy is within it in all that is wanted, and what the rival that is best in the
 *  figure pays for that. */
function extremes(trials: readonly Trial[]): string {
  const wanted = judged.filter(({ most }) => most !== null);
  const beyondIn = (trial: Trial, { figure }: (typeof wanted)[number]): boolean =>
    ratioOf(trial, figure) > RATIO_MAX;
  const isServed = (trial: Trial): boolean =>
    [trial.ours, ...Object.values(trial.rivals)].some(
      (figures) => !wanted.some((one) => beyondIn({ ...trial, ours: figures }, one)),
    );
  const lines = wanted.map((one) => {
    const { figure, name } = one;
    const beyond = trials.filter((trial) => beyondIn(trial, one));
    const paying = (paid: keyof Figures): string => {
      const pays = (trial: Trial): boolean =>
        timesWorse(paid, trial.ours, bestRival(trial, figure)!.figures) < 1;
      return paid === figure ? "" : `${beyond.filter(pays).length}`;
    };
    const rough = beyond.filter(({ configuration }) => configuration.noise === "rough").length;
    const contradicted = beyond.filter((trial) => !isServed(trial)).length;
    return [
      name,
      ...[beyond.length, contradicted, rough].map(String),
      ...(["latencyMeanMs", "latencyP99Ms", "tbtP99Ms"] as const).map(paying),
    ];
  });
  const head = [
    `Ours more than ${RATIO_MAX}× worse in`,
    "configurations",
    `no policy within ${RATIO_MAX}× in all three`,
    "rough noise",
    "the best rival has a worse mean",
    "a worse P99",
    "longer P99 gaps",
  ];
  const none = trials.filter((trial) => !isServed(trial)).length;
  return [
    `**Never more than ${RATIO_MAX}× worse**`,
    markdown(head, lines),
    `In ${none} of all configurations no policy of the list, ours included, is within ${RATIO_MAX}× of the best in mean, P99 and first token
at once: there the aim contradicts itself.`,
  ].join("\n\n");
}

/** Rivals that count: what a rival gains by giving up something else is no loss of a policy that does not. */
const fair: readonly {
  readonly name: string;
  readonly counts: (ours: Figures, rival: Figures) => boolean;
}[] = [
  { name: "any", counts: () => true },
  {
    name: "mean latency no worse than ours",
    counts: (ours, rival) => rival.latencyMeanMs <= ours.latencyMeanMs,
  },
  {
    name: "P99 latency no worse than ours",
    counts: (ours, rival) => rival.latencyP99Ms <= ours.latencyP99Ms,
  },
  {
    name: "P99 time between tokens no worse than ours",
    counts: (ours, rival) => rival.tbtP99Ms <= ours.tbtP99Ms,
  },
  { name: "nothing of the first three more than 2 % worse than ours", counts: paysNowhere },
  {
    name: "the same, and P99 time between tokens no worse than ours",
    counts: (ours, rival) => paysNowhere(ours, rival) && rival.tbtP99Ms <= ours.tbtP99Ms,
  },
];

/** Whether a rival is about as good as ours in all that is judged. */
function paysNowhere(ours: Figures, rival: Figures): boolean {
  return judged.every(({ figure, most }) => most === null || timesWorse(figure, rival, ours) <= 1.02);
}

/** How often ours loses to rivals that do not pay for it elsewhere. */
function prices(trials: readonly Trial[]): string {
  const lines = fair.map(({ name, counts }) => {
    const cells = judged.map(({ figure }) => {
      const ratios = trials.map(
        (trial) => bestRival(trial, figure, (rival) => counts(trial.ours, rival))?.ratio ?? 0,
      );
      return percent(shareOf(ratios, (ratio) => ratio > LOSS_RATIO));
    });
    return [name, ...cells];
  });
  const head = ["Of the rivals with", ...judged.map(({ name }) => name)];
  return [
    "**More than 10 % worse than the best of the rivals that do not pay for it elsewhere**",
    markdown(head, lines),
    undominated(trials),
  ].join("\n\n");
}

/** How often no rival dominates ours, and how often the rival that is ahead of ours in a figure pays for it with the mean. */
function undominated(trials: readonly Trial[]): string {
  const wanted = judged.filter(({ most }) => most !== null);
  const dominates = ({ ours }: Trial, rival: Figures): boolean => {
    const ratios = wanted.map(({ figure }) => timesWorse(figure, ours, rival));
    return ratios.every((ratio) => ratio >= 1) && ratios.some((ratio) => ratio > LOSS_RATIO);
  };
  const free = shareOf(
    trials,
    (trial) => !Object.values(trial.rivals).some((rival) => dominates(trial, rival)),
  );
  const paid = wanted.slice(1).map(({ figure, name }) => {
    const lost = trials.filter((trial) => ratioOf(trial, figure) > LOSS_RATIO);
    const pays = lost.filter(
      (trial) => timesWorse("latencyMeanMs", bestRival(trial, figure)!.figures, trial.ours) > LOSS_RATIO,
    );
    return `of the ${lost.length} in which it is behind in ${name}, in ${pays.length}`;
  });
  return `In ${percent(free)} of all configurations no rival dominates ours: is at least as good in mean, P99 and first token, and more than 10 %
better in one of them. The rival that is ahead has a mean latency more than 10 % worse than ours': ${paid.join("; ")}.`;
}

function byRival(trials: readonly Trial[]): string {
  const lines = Object.keys(trials[0]!.rivals).map((rival) => {
    const cells = judged.map(({ figure }) => {
      const ratios = trials.map(({ ours, rivals }) => timesWorse(figure, ours, rivals[rival]!));
      const better = shareOf(ratios, (ratio) => ratio < 1);
      const mark = better < BETTER_SHARE_MIN ? "**" : "";
      return `${mark}${percent(better)}${mark} / ${percent(shareOf(ratios, (ratio) => ratio > LOSS_RATIO))}`;
    });
    return [rival, ...cells];
  });
  const head = ["Rival", ...judged.map(({ name }) => name)];
  return `**Share of configurations in which ours is better / more than 10 % worse**\n\n${markdown(head, lines)}`;
}

/** How often ours loses where a trait is, by what the trait is about. */
function byTrait(trials: readonly Trial[]): string {
  const groups: Map<string, Trial[]>[] = [];
  for (const trial of trials) {
    for (const [aspect, trait] of traitsOf(trial.configuration).entries()) {
      groups[aspect] ??= new Map();
      groups[aspect].set(trait, [...(groups[aspect].get(trait) ?? []), trial]);
    }
  }
  const sorted = groups.flatMap((traits) => [...traits].sort(([a], [b]) => (a < b ? -1 : 1)));
  const lines = sorted.map(([trait, group]) => [
    trait,
    `${group.length}`,
    ...judged.map(({ figure }) => percent(shareOf(group, (trial) => ratioOf(trial, figure) > LOSS_RATIO))),
  ]);
  const head = ["Of the configurations with", "", ...judged.map(({ name }) => name)];
  return `**Losses by what configurations have in common**\n\n${markdown(head, lines)}`;
}

function worst(trials: readonly Trial[], figure: keyof Figures, name: string): string {
  const lines = trials
    .map((trial) => ({ trial, best: bestRival(trial, figure)! }))
    .filter(({ best }) => best.ratio > LOSS_RATIO)
    .sort((a, b) => b.best.ratio - a.best.ratio)
    .slice(0, WORST_SHOWN)
    .map(({ trial: { configuration, ours }, best }) => [
      idOf(configuration),
      describe(configuration),
      shownFigure(figure, ours[figure]),
      `${best.name}: ${shownFigure(figure, best.figures[figure])}`,
      times(best.ratio),
    ]);
  const head = ["Repeat", "Configuration", "ours", "best rival", ""];
  return `**Worst in ${name}**\n\n${lines.length === 0 ? "None." : markdown(head, lines)}`;
}

/** One line for people. */
export function describe({ device, engines, pages, loadShare, load, noise }: Configuration): string {
  const { rootTokens, documents, documentTokens, skew, sections, sectionTokens } = load;
  const range = ({ least, most }: { least: number; most: number }): string =>
    least === most ? `${least}` : `${least}–${most}`;
  return [
    `${engines} ${device}, ${pages} pages`,
    rootTokens > 0 ? `root ${rootTokens}` : "",
    documentTokens.most > 0
      ? `${documents} documents of ${range(documentTokens)}, skew ${skew}`
      : "nothing shared",
    sections > 0 ? `${sections} sections of ${range(sectionTokens)}` : "",
    `question ${range(load.suffixTokens)}, answer ${range(load.outputTokens)}`,
    load.tokensMax === null ? "" : `at most ${load.tokensMax}`,
    `load ${loadShare.toFixed(2)} (${load.callsPerSecond.toPrecision(3)}/s)`,
    load.variation > 1 ? `bursts ${load.variation}` : "",
    load.tenants > 1 ? `${load.tenants} tenants` : "",
    noise === null ? "" : `${noise} noise`,
  ]
    .filter((part) => part !== "")
    .join("; ");
}

/** Reports of the kind that the demo model summarises. */
export const reports: readonly string[] = [
  `Monthly report

Sales
In March, sales rose by 12 percent. Everyone is happy with this.

Staff
Three people joined the team after the fair in Lyon. The details are in the appendix.`,
  `Monthly report

Costs
In April, costs fell by 3 percent. Everyone is happy with this.

Office
The office moved to Oslo. The details are in the appendix.`,
  `Monthly report

Costs
In May, costs fell by 5 percent. The details are in the appendix.`,
];

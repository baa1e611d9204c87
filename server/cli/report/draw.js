/* Draws the plots of a report. It runs in a browser, inside the report's file. */
const plots = JSON.parse(document.getElementById("plots").textContent);
const colours = ["#3b7ddd", "#d9822b", "#2a9d6f", "#b5476d", "#7a5fc0", "#6b7a8f"];
const isDark = matchMedia("(prefers-color-scheme: dark)").matches;
const ink = isDark ? "#c9d1d9" : "#444";
const grid = isDark ? "#30363d" : "#e3e6ea";
const HEIGHT_PX = 300;

for (const [index, { xLabel, yLabel, x, lines, mark }] of plots.entries()) {
  const root = document.getElementById(`plot-${index}`);
  const axis = (label) => ({ label, stroke: ink, grid: { stroke: grid, width: 1 }, ticks: { stroke: grid } });
  const upwards = { ...axis(yLabel), size: 70 };
  const upright = (plot) => {
    if (mark === undefined) return;
    const at = plot.valToPos(mark, "x", true);
    const { ctx, bbox } = plot;
    ctx.save();
    ctx.strokeStyle = ink;
    ctx.setLineDash([6, 4]);
    ctx.beginPath();
    ctx.moveTo(at, bbox.top);
    ctx.lineTo(at, bbox.top + bbox.height);
    ctx.stroke();
    ctx.restore();
  };
  const options = {
    width: root.clientWidth,
    height: HEIGHT_PX,
    scales: { x: { time: false }, y: { range: (_, least, most) => [Math.min(0, least), most * 1.05 || 1] } },
    axes: [axis(xLabel), upwards],
    series: [
      { label: xLabel },
      ...lines.map(({ label }, line) => ({
        label,
        stroke: colours[line % colours.length],
        width: 2,
        spanGaps: true,
        points: { show: x.length <= 40 },
      })),
    ],
    hooks: { draw: [upright] },
  };
  const plot = new uPlot(options, [x, ...lines.map(({ values }) => values)], root);
  new ResizeObserver(() => plot.setSize({ width: root.clientWidth, height: HEIGHT_PX })).observe(root);
}

/* What stands behind the chart's lines: ground that is shaded, and where epochs begin. */

import { style } from "./dom.js";

/* Where releases are missing, the ground is shaded; where an epoch begins, there is a line with its number. */
export function drawMarks({ ctx, bbox, valToPos }, shown) {
  ctx.save();
  ctx.beginPath();
  ctx.rect(bbox.left, bbox.top, bbox.width, bbox.height);
  ctx.clip();
  ctx.fillStyle = style("--track");
  for (const [from, to] of shown.gaps) {
    const left = valToPos(from, "x", true);
    ctx.fillRect(left, bbox.top, valToPos(to, "x", true) - left, bbox.height);
  }
  ctx.strokeStyle = ctx.fillStyle = style("--quiet");
  ctx.font = `${12 * devicePixelRatio}px system-ui, sans-serif`;
  ctx.textAlign = "left";
  ctx.textBaseline = "top";
  ctx.setLineDash([4 * devicePixelRatio, 4 * devicePixelRatio]);
  for (const begin of shown.begins) {
    const left = valToPos(shown.x[begin], "x", true);
    ctx.beginPath();
    ctx.moveTo(left, bbox.top);
    ctx.lineTo(left, bbox.top + bbox.height);
    ctx.stroke();
    ctx.fillText(`epoch ${shown.epoch[begin]}`, left + 4 * devicePixelRatio, bbox.top);
  }
  ctx.restore();
}

/* No line leads from one epoch into the next. */
export function breaks(of, shown, found) {
  const between = shown.begins.map((begin) => [begin - 1, begin].map((each) => of.valToPos(shown.x[each], "x", true)));
  const others = between.filter(([from, to]) => !found.some(([a, b]) => a - 1 <= from && to <= b + 1));  // uPlot takes no overlaps
  return [...found, ...others].toSorted(([a], [b]) => a - b);
}

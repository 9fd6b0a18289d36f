/* The chart as a picture to be saved. */

import { color, drawn } from "./chart.js";
import { style, visible } from "./dom.js";
import { whole } from "./format.js";
import { view } from "./state.js";

/* The chart as it is seen, with its labels, on the page's ground. */
export function picture() {
  const { canvas: from, labels } = drawn(), made = document.createElement("canvas"), ratio = devicePixelRatio, head = 34 * ratio;
  made.width = from.width;
  made.height = from.height + head;
  const ctx = made.getContext("2d");
  ctx.fillStyle = style("--card");
  ctx.fillRect(0, 0, made.width, made.height);
  ctx.drawImage(from, 0, head);
  ctx.font = `${13 * ratio}px system-ui, sans-serif`;
  let left = 12 * ratio;
  for (const [number, label] of labels.entries()) {
    ctx.fillStyle = color(number);
    ctx.fillText(visible(label), left, 22 * ratio);
    left += ctx.measureText(visible(label)).width + 16 * ratio;
  }
  ctx.fillStyle = style("--quiet");
  const { release } = view.shown, about = `${release.stream} · round ${whole(release.round)} · ${release.counts_what}`;
  ctx.fillText(about, Math.max(left, made.width - ctx.measureText(about).width - 12 * ratio), 22 * ratio);
  return made;
}

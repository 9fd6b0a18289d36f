/* What stream_dp/privacy/wording.py says of what is counted. */

import { whole } from "./format.js";

const OF = { event: "each event", user: "each user", "user-day": "each user's day" };

export function counted({ unit, items_per_event: items }) {
  return `Counts the first ${items === 1 ? "item" : `${whole(items)} items`} of ${OF[unit]}; what comes after is left out.`;
}

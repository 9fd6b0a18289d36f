/* How a stream is, in a word and a sentence: for its badge here, and for that in the index of several streams. */

import { span, when, whole } from "./format.js";

const REPLAY_SECONDS = 60, IDLE_SECONDS = 60, MANY_BEHIND = 500;

/* The kind of the badge, its word, and what to know about it, if anything. */
export function stateOf({ state, release, age, delay, behind }) {
  if (state === "unreachable") return ["warn", "Kafka unreachable", "The server cannot reach Kafka. It keeps trying."];
  if (state === "no-topic") return ["wait", "Waiting", "The stream has no releases topic yet: start its worker, or check the stream's name."];
  if (!release) return ["wait", "Waiting", null];
  if (release.horizon !== null && release.round >= release.horizon) return ["wait", "Complete", "The horizon is reached: this epoch releases nothing more."];
  if (delay > REPLAY_SECONDS) return ["past", "Replay",
    `Older than live: this release is about ${when(release.ts)} and was published ${span(delay)} later.`];
  if (behind > MANY_BEHIND) return ["past", "Catching up", `${whole(behind)} newer releases are on their way.`];
  return age > IDLE_SECONDS ? ["wait", "Idle", null] : ["live", "Live", null];
}

/* What stream_dp/releases/silence.py says of a release without labels. */

import { whole } from "./format.js";

export function silence(release) {
  const expected = release.shown === "kept" && release.tau !== null && release.round >= release.tau + 4 * release.sd;
  return expected ? `${whole(release.round)} rounds without a label: records may not match the mapping; see dead letters.` : "";
}

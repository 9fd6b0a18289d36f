/* What stream_dp/releases/silence.py says of a release without labels. */

import { whole } from "./format.js";

export function silence(release) {
  const latest = release.tests ? 80 * release.test_draw_sd : release.tau + 4 * release.sd;
  const expected = release.shown === "kept" && !release.window && release.round >= latest;
  return expected ? `${whole(release.round)} rounds without a label: records may not match the mapping; see dead letters.` : "";
}

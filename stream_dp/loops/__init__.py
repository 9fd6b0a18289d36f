"""The loops over labels, draws and baskets that are too slow in Python, in C.

Each file says at its loops what they take and give.  All check that their arrays have the right types and belong
together, and raise TypeError or ValueError if not; they write to the last arrays they are given, and let other threads
run meanwhile.
"""

from stream_dp.errors import Refused

try:
    import stream_dp.loops._compiled as _compiled
except ImportError as missing:
    raise Refused(
        f"the compiled part of stream_dp cannot be loaded ({missing}): install a C compiler and the headers of Python "
        "(Debian: apt-get install gcc python3-dev), and then stream_dp again"
    ) from None

mix_words = _compiled.mix_words
draw_normals = _compiled.draw_normals
draw_middles = _compiled.draw_middles
blt_advance = _compiled.blt_advance
blt_add_up = _compiled.blt_add_up
blt_combine = _compiled.blt_combine
reach_follow = _compiled.reach_follow
reach_compare = _compiled.reach_compare
encode_labels = _compiled.encode_labels
find_starts = _compiled.find_starts
measure_labels = _compiled.measure_labels
spell_labels = _compiled.spell_labels
measure_following = _compiled.measure_following
spell_following = _compiled.spell_following
place_rows = _compiled.place_rows
text_digests = _compiled.text_digests
chained_digests = _compiled.chained_digests
fill_greedily = _compiled.fill_greedily
fill_evenly = _compiled.fill_evenly
move_towards = _compiled.move_towards

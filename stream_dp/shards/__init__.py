"""A stream on several machines: a sequencer closes rounds, shards own labels and release their part, a merge joins it.

    <stream>.events -> sequencer -> <stream>.frames -> shards -> <stream>.shards -> merge -> <stream>.releases

Noise is a function of the label and the round, so the merged releases are those of one worker, byte for byte.
"""

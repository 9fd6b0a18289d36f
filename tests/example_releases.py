"""Releases to look at, made by hand."""

from msgspec.structs import replace

from stream_dp.releases.release import Release


def release(round_number: int, counts: dict[str, int], stream: str = "flights") -> Release:
    """A release of epsilon 2 over 65,535 rounds with these counts, whose tau is 112 and sd 15.9."""
    return Release(
        v=1,
        stream=stream,
        epoch=1,
        nonce="00" * 16,
        round=round_number,
        horizon=65_535,
        ts="2026-01-31T12:00:00.000Z",
        unit="event",
        mechanism="binary",
        epsilon=2.0,
        delta=1e-6,
        rho=0.0947,
        items_per_event=3,
        shown="each-round",
        previous=round_number - 1,
        tag="00" * 16,
        sd=15.92,
        tau=112,
        part=1,
        parts=1,
        labels=list(counts),
        counts=list(counts.values()),
    )


def carrying_on(release: Release) -> Release:
    """The same in epoch 3, which carries on two others: its labels have 1,000 from before, the last of them nothing."""
    before = [1_000] * (len(release.labels) - 1) + [0]
    return replace(
        release,
        epoch=3,
        nonce="33" * 16,
        since=[1] * (len(before) - 1) + [3],
        totals=[count + more for count, more in zip(release.counts, before, strict=True)],
        total_sds={"1": 25.0, "3": release.sd},
    )

"""With the rights that `check --rights` lists each process works, and with no others."""

import re
from collections.abc import Callable

import pytest

from stream_dp.config.settings import Settings
from stream_dp.kafka import log, roles
from stream_dp.kafka.rights import Right
from tests.apache_kafka.authorized import PASSWORD
from tests.system.forked_program import start
from tests.system.streams import as_values, ended
from tests.system.test_rights import (
    ROLES,
    SECRET,
    SECTION,
    Site,
    _password,
    authorized,
    feed,
    make_site,
    records_in,
    rights_of,
)
from tests.system.waiting import wait_until

__all__ = ["_password", "authorized", "make_site"]

pytestmark = pytest.mark.apache("rights", alone=True)


def listed(site: Site, role: str) -> list[Right]:
    """See `rights_of`."""
    values = as_values(site.settings) | {"mapping": None, "events": SECTION % site.settings.stream}
    return rights_of(role, values, site.folder / "check.json")


@pytest.mark.parametrize("name", ROLES)
def test_a_process_works_with_exactly_the_rights_that_are_listed(
    name: str, make_site: Callable[..., Site]
) -> None:
    site, role = make_site(), ROLES[name]
    role.prepare(site)
    site.broker.grant(listed(site, role.name))
    with site.running(*role.words) as process:
        site.await_(lambda: role.works(site), process)
    assert "does not give" not in site.logged()
    assert "not committed" not in site.logged()
    assert "Traceback" not in site.logged()


@pytest.mark.parametrize("name", ["worker", "table", "one-shot"])
def test_topics_that_are_made_need_the_rights_to_make_them_and_no_others(
    name: str, make_site: Callable[..., Site]
) -> None:
    site, role = make_site(create_topics=True), ROLES[name]
    if name == "table":
        log.create_topics(site.stream.settings.kafka, site.settings.releases)
    role.prepare(site)
    rights = listed(site, role.name)
    created = [each for each in rights if each.operation == "CREATE"]
    assert created
    site.broker.grant(each for each in rights if each != created[-1])
    with site.running(*role.words) as process:
        missing = "dead letters will wait in memory" if name == "worker" else "CREATE"
        wait_until(lambda: missing in site.logged(), site.logged)
        assert name == "worker" or ended(process) == 2
    assert created[-1].topic in site.logged()
    site.broker.grant(rights)
    with site.running(*role.words) as process:
        site.await_(lambda: role.works(site), process)
    assert "Traceback" not in site.logged()


@pytest.mark.parametrize("taken", roles.dashboard(Settings(stream="S")), ids=" ".join)
def test_the_page_names_what_it_may_not_read_and_goes_on_once_it_may(
    taken: Right, make_site: Callable[..., Site]
) -> None:
    site, role = make_site(), ROLES["dashboard"]
    role.prepare(site)
    right = site.named(" ".join(taken))
    site.broker.grant(each for each in role.needed(site.settings) if each != right)
    site.broker.withdraw(*right)
    with site.running(*role.words) as page:
        told = f"the right {right.operation} on the topic {right.topic!r}"
        site.await_(lambda: told in site.logged(), page)
        site.broker.grant([right])
        site.await_(lambda: role.works(site), page)
    assert "Traceback" not in site.logged()


def test_a_person_is_erased_with_exactly_the_rights_that_are_listed(make_site: Callable[..., Site]) -> None:
    site = make_site()
    own, copy, output = site.settings, f"{site.settings.events}-2", site.folder / "erased.txt"
    feed(site)
    values = as_values(own) | {"mapping": None, "events": SECTION % own.stream}
    words = "erase", "--where", "customer == 'c7'", "--to", copy
    rights = listed(site, "erase")
    for right in sorted(rights, key=lambda each: (each.topic == copy, each.operation)):
        site.broker.grant(each for each in rights if each != right)
        site.broker.withdraw(*right)
        output.unlink(missing_ok=True)
        assert ended(start(values, output, *words, **{SECRET: PASSWORD})) == 2, output.read_text()
        told = " ".join(output.read_text().split())
        place = re.escape(f"on the topic '{right.topic}'")
        assert re.search(rf"the right [^:]*\b{right.operation}\b[^,:]* {place}", told), told
    assert {own.dead_letters, copy} & {*log.topics(site.stream.settings.kafka)} == {own.dead_letters}
    site.broker.grant(rights)
    assert ended(start(values, output, *words, **{SECRET: PASSWORD})) == 0, output.read_text()
    assert records_in(site, copy) == records_in(site, own.events)

"""Schema registries that speak the protocol of Confluent's: what stands under a number."""

from typing import Any
from urllib.parse import quote

import httpx2

from stream_dp.config.connections import TlsFiles, tls_context
from stream_dp.config.events_section import EventsSection
from stream_dp.config.secret import read_secret
from stream_dp.errors import StreamDpError
from stream_dp.events.mapping.schema import Schema

_ANSWER_SECONDS = 5.0
_LARGEST_ANSWER = 1 << 20
_MOST_REFERENCES = 100
_NOT_FOUND, _OK = 404, 200


class RegistryAway(StreamDpError):
    """The registry does not answer, or not us; the message says why."""


class NoSchema(StreamDpError):
    """The registry answers, and gives no schema under this number; `sure`: because it says that there is none."""

    def __init__(self, why: str, sure: bool) -> None:
        super().__init__(why)
        self.sure = sure


class SchemaRegistry:
    """A registry, asked over one connection.  Nothing is connected before the first question."""

    def __init__(self, section: EventsSection) -> None:
        """Raises `SettingsError` for a password or a certificate that cannot be read."""
        self.address = section.schema_registry or ""
        files = TlsFiles(section.registry_ca_file, section.registry_client_cert, section.registry_client_key)
        login: tuple[str, str] | None = None
        if section.registry_username is not None and section.registry_password is not None:
            password = read_secret("password of the schema registry", section.registry_password)
            login = section.registry_username, password
        secure = self.address.startswith("https:")
        self._client = httpx2.Client(
            base_url=self.address.rstrip("/") + "/",
            auth=login,
            verify=tls_context("registry", files) if secure else True,
            timeout=_ANSWER_SECONDS,
            trust_env=False,
        )

    def close(self) -> None:
        """Leave it."""
        self._client.close()

    def schema(self, number: int) -> Schema:
        """The schema under a number, with those that it refers to.  Raises `NoSchema` or `RegistryAway`."""
        found = self._asked(f"schemas/ids/{number}")
        known: dict[str, str] = {}
        self._follow(found, known)
        return Schema(found["schema"], tuple(known.items()))

    def newest(self, subject: str) -> tuple[str, str]:
        """What kind the newest schema of a subject is, such as AVRO, and its text; see `schema`."""
        found = self._asked(f"subjects/{quote(subject, safe='')}/versions/latest")
        return str(found.get("schemaType", "AVRO")), found["schema"]

    def _follow(self, found: dict[str, Any], known: dict[str, str]) -> None:
        """Note the references of what was found, each behind its own."""
        for each in found.get("references") or ():
            try:
                name, place = each["name"], f"subjects/{each['subject']}/versions/{int(each['version'])}"
            except (KeyError, TypeError, ValueError):
                raise NoSchema("it gives a reference that leads nowhere", sure=False) from None
            if name not in known:
                if len(known) == _MOST_REFERENCES:
                    raise NoSchema(f"it gives more than {_MOST_REFERENCES} references", sure=False)
                referred = self._asked(place)
                self._follow(referred, known)
                known[name] = referred["schema"]

    def _asked(self, place: str) -> dict[str, Any]:
        answer = self._get(place)
        if answer.status_code == _NOT_FOUND:
            raise NoSchema("it knows none", sure=True)
        if answer.status_code != _OK:
            if (probe := self._get("schemas/types").status_code) != _OK:
                raise RegistryAway(f"it answers with status {probe}")
            raise NoSchema(f"it answers with status {answer.status_code}", sure=False)
        if len(answer.content) > _LARGEST_ANSWER:
            raise NoSchema(f"it gives one of more than {_LARGEST_ANSWER} bytes", sure=False)
        try:
            found = answer.json()
        except ValueError:
            raise RegistryAway("it answers with something that is no JSON") from None
        if not isinstance(found, dict) or not isinstance(found.get("schema"), str):
            raise NoSchema("it gives none", sure=False)
        return found

    def _get(self, place: str) -> httpx2.Response:
        try:
            return self._client.get(place)
        except httpx2.HTTPError as error:
            raise RegistryAway(type(error).__name__) from None

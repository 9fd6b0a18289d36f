"""What both widgets are: a page in a frame, whose questions a thread beside the kernel answers."""

import asyncio
from collections.abc import Coroutine
from concurrent.futures import Future
from functools import cache
from threading import Thread
from typing import Any, TypeVar

import anywidget
import traitlets

from stream_dp.notebook.page import OWN

_Value = TypeVar("_Value")


@cache
def _loop() -> asyncio.AbstractEventLoop:
    """The event loop that answers for all widgets of this kernel, in a thread beside that of the cells."""
    loop = asyncio.new_event_loop()
    Thread(target=loop.run_forever, name="stream-dp-widgets", daemon=True).start()
    return loop


def beside(work: Coroutine[Any, Any, _Value]) -> "Future[_Value]":
    """Have this done in the thread of the widgets."""
    return asyncio.run_coroutine_threadsafe(work, _loop())


class PageWidget(anywidget.AnyWidget):
    """A page that asks the kernel.  `page` is the HTML of the frame, `height` its height in CSS pixels."""

    _esm = OWN / "widget.js"
    page = traitlets.Unicode().tag(sync=True)
    title = traitlets.Unicode().tag(sync=True)
    height = traitlets.Int(720).tag(sync=True)

    def __init__(self, page: str, title: str, height: int) -> None:
        super().__init__(page=page, title=title, height=height)
        self.on_msg(self._asked)

    async def answer(self, question: str) -> tuple[int, str]:
        """The status, as in HTTP, and the JSON that answers a question of the page: a path and a query."""
        raise NotImplementedError

    def _asked(self, _: object, message: object, __: object) -> None:
        match message:
            case {"view": str(view), "number": int(number), "question": str(question)}:
                beside(self._reply(view, number, question))

    async def _reply(self, view: str, number: int, question: str) -> None:
        status, body = await self.answer(question)
        self.send({"view": view, "number": number, "status": status, "body": body})

"""Values that people read as tables: as Arrow, pandas or Polars, and in a notebook as the table itself."""

from __future__ import annotations

from collections.abc import Callable
from html import escape
from typing import TYPE_CHECKING, Any

from stream_dp.errors import needs_extra

if TYPE_CHECKING:
    import pandas
    import polars
    import pyarrow

_SHOWN_ROWS = 20
_TEXTS = ("label", "query")


class Framed:
    """A table with a row for each label, or each round."""

    _columns: Callable[..., dict[str, Any]]
    """The columns by name, arrays of numpy or lists; what it takes are the choices of the methods below."""
    _caption: Callable[[], str]
    """What stands above the table in a notebook."""

    def to_arrow(self, **choices: Any) -> pyarrow.Table:
        """The table in Arrow.  Raises `ExtraMissing` without pyarrow."""
        with needs_extra("to_arrow", "local"):
            import pyarrow
        return pyarrow.table(
            {
                name: pyarrow.array(column, pyarrow.string() if name in _TEXTS else None)
                for name, column in self._columns(**choices).items()
            }
        )

    def to_pandas(self, **choices: Any) -> pandas.DataFrame:
        """The table of `to_arrow`, which takes the same choices, as a DataFrame of pandas, which must be installed."""
        return self.to_arrow(**choices).to_pandas()

    def to_polars(self, **choices: Any) -> polars.DataFrame:
        """The table of `to_arrow`, which takes the same choices, as a DataFrame of Polars, which must be installed."""
        import polars

        return polars.DataFrame(self.to_arrow(**choices))

    def _repr_html_(self) -> str:
        """The first rows, as notebooks show them."""
        table = self.to_arrow()
        head = "".join(f"<th>{escape(name)}</th>" for name in table.column_names)
        rows = "".join(
            f"<tr>{''.join(map(_cell, row.values()))}</tr>" for row in table.slice(0, _SHOWN_ROWS).to_pylist()
        )
        more = table.num_rows - _SHOWN_ROWS
        rest = f"<p>and {more:,} more: see <code>to_pandas()</code></p>" if more > 0 else ""
        return (
            f"<table><caption>{escape(self._caption())}</caption>"
            f"<thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table>{rest}"
        )


def _cell(value: Any) -> str:
    if isinstance(value, str) or value is None:
        return f'<td style="text-align: left"><bdi>{escape(value or "")}</bdi></td>'
    if isinstance(value, bool):
        return f"<td>{'yes' if value else ''}</td>"
    return f"<td>{value:,.1f}</td>" if isinstance(value, float) else f"<td>{value:,}</td>"

"""``outlast weight``: show, set and reset the weights of tenants that take turns."""

from __future__ import annotations

from typing import Annotated

import typer

from outlast.base.text import line
from outlast.cli.connect import me, on_store
from outlast.cli.options import Json, Url, make_group
from outlast.cli.show import print_json, print_table
from outlast.client.limits import make_weight
from outlast.insight.acting import set_weight
from outlast.insight.limits import weights_document
from outlast.store.limits import Weight

Tenant = Annotated[str, typer.Argument(metavar="TENANT", help="The tenant.")]

HELP = """List the weights of tenants, or set or reset one.

Where tenants take turns, one with weight 3 has three turns in a row, so three of its jobs start
for each one of a tenant without a weight.

Examples:
    outlast weight
    outlast weight set acme 3
    outlast weight reset acme
"""


def show(url: Url = None, json: Json = False) -> None:
    """List the tenants with a weight.

    The largest comes first; 1,000 are shown at most.

    Examples:
        outlast weight show
        outlast weight show --json
    """
    found = on_store(url, lambda store: store.inspector.weights())
    if json:
        print_json(weights_document(found))
        return
    none = "no tenant has a weight: `outlast weight set TENANT 3` gives it three turns in a row"
    rows = [{"TENANT": line(row.tenant), "WEIGHT": str(row.weight)} for row in found]
    print_table(rows, none)


def set_(
    tenant: Tenant,
    weight: Annotated[int, typer.Argument(metavar="WEIGHT", help="From 1 to 100.")],
    url: Url = None,
) -> None:
    """Set how many turns in a row a tenant has, from 1 to 100.

    Workers follow at their next claim.

    Examples:
        outlast weight set acme 3
    """
    _set(make_weight(tenant, weight), url)
    print(f"{line(tenant)} has the weight {weight}")


def reset(tenant: Tenant, url: Url = None) -> None:
    """Give a tenant one turn at a time again, as all others have.

    Workers follow at their next claim.

    Examples:
        outlast weight reset acme
    """
    _set(make_weight(tenant, 1), url)
    print(f"{line(tenant)} has the weight 1, as all others")


def _set(new: Weight, url: str | None) -> None:
    on_store(url, lambda store: set_weight(store, new, me()), reads=False)


GROUP = make_group(HELP, show, set_, reset, default=show)

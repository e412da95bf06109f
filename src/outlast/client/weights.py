"""Weights of tenants at run time: ``app.weights``."""

from __future__ import annotations

from collections.abc import Sequence

from outlast.base.config import check_key, check_whole
from outlast.base.sync import blocking
from outlast.client.stores import StoreProvider
from outlast.insight.acting import set_weight
from outlast.model.limits import WEIGHT_MAX
from outlast.store.limits import Weight


def make_weight(tenant: object, weight: object) -> Weight:
    """Return the weight of a tenant, checked. ConfigError names what cannot work."""
    return Weight(check_key("tenant", tenant), check_whole("weight", weight, 1, WEIGHT_MAX))


class Weights:
    """The weights of tenants in an application's store: ``app.weights``.

    Where tenants take turns (``@app.task(fair="tenant")``), one with weight 3 has three turns in a
    row, so three of its jobs start for each one of a tenant without a weight. All workers follow a
    change at their next claim.
    """

    def __init__(self, stores: StoreProvider) -> None:
        self._stores = stores

    def __repr__(self) -> str:
        return "<Weights>"

    async def set(self, tenant: str, weight: int) -> None:
        """Set the weight of a tenant, from 1 to 100. ConfigError if it is none."""
        await self._set(make_weight(tenant, weight))

    set_sync = blocking(set)  # noqa: A003

    async def reset(self, tenant: str) -> None:
        """Give a tenant the weight of all others again, 1."""
        await self._set(make_weight(tenant, 1))

    reset_sync = blocking(reset)

    async def list(self) -> Sequence[Weight]:
        """Return the tenants with a weight above 1, the largest first, at most 1,000."""
        return await self._stores.ask(lambda store: store.inspector.weights())

    list_sync = blocking(list)  # noqa: A003

    async def _set(self, new: Weight) -> None:
        await self._stores.ask(lambda store: set_weight(store, new, None))

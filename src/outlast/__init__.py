"""Outlast: background jobs that outlast the workers running them.

Its other public names (``outlast/client/public.py``) are loaded at the first use of one of them:
``python -m outlast.probe``, which is started every few seconds, needs none.
"""

__version__ = "0.1.0"

TYPE_CHECKING = False
if TYPE_CHECKING:
    from outlast.client.public import *  # noqa: F403

    __all__: list[str]
else:

    def _load() -> object:
        from importlib import import_module

        return import_module("outlast.client.public")

    def __getattr__(name: str) -> object:
        if name.startswith("__") and name != "__all__":
            raise AttributeError(f"module 'outlast' has no attribute {name!r}")
        public = _load()
        if name in globals():  # a module of ours that is loaded by now, such as outlast.events
            return globals()[name]
        names = [each for each in vars(public) if not each.startswith("_")]
        value = globals()[name] = names if name == "__all__" else getattr(public, name)
        return value

    def __dir__() -> list[str]:
        return sorted({*globals(), *__getattr__("__all__")})

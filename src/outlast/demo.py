"""Define the application of ``outlast demo``: one task, written as any user writes one.

It counts prime numbers in blocks and saves a checkpoint after each block. Their number is known, so
a block that was lost, or counted twice, would show in the result.
"""

from __future__ import annotations

from math import isqrt

import outlast

LIMIT, BLOCKS = 100_000_000, 40
PRIMES = 5_761_455  # below LIMIT

app = outlast.App()


@app.task(name="outlast.demo.count_primes")
def count_primes(limit: int, blocks: int) -> dict[str, int]:
    """Count the primes below ``limit``; also return how many blocks this attempt found saved."""
    attempt = outlast.current()
    saved = attempt.checkpoint or {"blocks": 0, "primes": 0}  # by the attempt before this one
    primes = saved["primes"]
    for block in range(saved["blocks"], blocks):
        primes += count_between(limit * block // blocks, limit * (block + 1) // blocks)
        attempt.save_sync({"blocks": block + 1, "primes": primes})  # durable from here on
        attempt.report((block + 1) / blocks, f"block {block + 1} of {blocks}")
    return {"primes": primes, "began_after": saved["blocks"]}


def count_between(start: int, stop: int) -> int:
    """Return how many primes there are from ``start`` to below ``stop``, by a sieve."""
    is_prime = bytearray(b"\1") * (stop - start)
    is_prime[: max(0, 2 - start)] = bytes(max(0, 2 - start))  # 0 and 1 are not prime
    for factor in (2, *range(3, isqrt(stop) + 1, 2)):
        first = max(factor * factor, -(-start // factor) * factor)
        is_prime[first - start :: factor] = bytes(len(range(first, stop, factor)))
    return is_prime.count(1)

"""A thousand cells: how even the hash is, and what a hot tenant, one more and one less do."""

from statistics import quantiles

from examples.cells.app import score

CELLS, TENANTS = 1000, 20_000


def main() -> None:
    cells = [f"cell-{number}" for number in range(CELLS)]
    best = {  # of each tenant: its highest score, and the cell that has it
        tenant: max((score(cell, tenant), cell) for cell in cells)
        for tenant in (f"tenant-{number}" for number in range(TENANTS))
    }
    homes = {tenant: cell for tenant, (_, cell) in best.items()}
    joined = sum(score("cell-new", tenant) > high for tenant, (high, _) in best.items())
    alike, uneven = dict.fromkeys(cells, 0.0), dict.fromkeys(cells, 0.0)
    work = {tenant: 1 / (rank + 1) for rank, tenant in enumerate(homes)}  # Zipf: the first is hot
    mean = sum(work.values()) / CELLS
    for tenant, cell in homes.items():
        alike[cell] += CELLS / TENANTS
        uneven[cell] += work[tenant] / mean
    print(f"""
{CELLS:,} cells, {TENANTS:,} tenants; the work of a cell as a multiple of the mean

| tenants | median | 99 of 100 below | the fullest |
|---|---|---|---|
| all alike | {tell(alike)} |
| the n-th has 1/n of the work of the first | {tell(uneven)} |

The hottest tenant alone: {max(work.values()) / mean:.0f} times the mean of a cell.
One more cell: {joined} tenants move, all of them to it; its share is {TENANTS / (CELLS + 1):.0f}.
A cell is lost: {alike["cell-0"] * TENANTS / CELLS:.0f} tenants wait; the others notice nothing.""")


def tell(work: dict[str, float]) -> str:
    marks = quantiles(work.values(), n=100)
    return " | ".join(f"{mark:.2f}" for mark in (marks[49], marks[98], max(work.values())))


if __name__ == "__main__":
    main()

"""How many bytes of a card the tier may use. Pure."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class CardFigures:
    """What a card says of its memory, in bytes; None: it gives no figures.

    `is_host_memory`: the card has none of its own, and the figures are the host's.
    `fragmentation` is the share of what is free that lies outside of the largest free piece; None:
    the card maps pages, and needs no pieces.
    """

    total_bytes: int | None
    used_bytes: int | None
    is_host_memory: bool = False
    fragmentation: float | None = None


@dataclass(frozen=True, slots=True)
class Budget:
    """`capacity_bytes` may be held now; `foreign_bytes` are in use by others than this tier.

    `ceiling_bytes` is what could be held if nobody else used the card: what exceeds it never fits.
    """

    capacity_bytes: int
    ceiling_bytes: int
    foreign_bytes: int
    is_shared_with_host: bool
    why: str
    fragmentation: float | None = None

    def surplus_bytes(self, held_bytes: int) -> int:
        """What has to go because others took the room; never more than is held."""
        return min(held_bytes, max(0, held_bytes - self.capacity_bytes))


def make_budget(
    setting_bytes: int,
    figures: CardFigures,
    *,
    ours_bytes: int,
    host_capacity_bytes: int = 0,
    host_held_bytes: int = 0,
) -> Budget:
    """The setting, or what the card has beside others' use if that is less.

    Args:
        setting_bytes: what the administrator allows on this card.
        figures: what the card says.
        ours_bytes: bytes of our extents, those that pods still map after we let go included.
        host_capacity_bytes: what the host tier may use; it is not given away a second time.
        host_held_bytes: what it holds, and what is therefore among the bytes in use.
    """
    if figures.total_bytes is None or figures.used_bytes is None:
        return Budget(0, 0, 0, figures.is_host_memory, "the card does not say how much it has")
    foreign = max(0, figures.used_bytes - ours_bytes)
    taken = foreign
    ceiling = min(setting_bytes, figures.total_bytes)
    if figures.is_host_memory:
        taken += max(0, host_capacity_bytes - host_held_bytes)
        ceiling = min(setting_bytes, max(0, figures.total_bytes - host_capacity_bytes))
    room = max(0, figures.total_bytes - taken)
    capacity = min(setting_bytes, room)
    why = (
        f"{setting_bytes} bytes are allowed"
        if capacity == setting_bytes
        else f"{setting_bytes} bytes are allowed, but of {figures.total_bytes} {taken} are others'"
    )
    if figures.is_host_memory:
        why += "; the card's memory is the host's"
    return Budget(capacity, ceiling, foreign, figures.is_host_memory, why, figures.fragmentation)

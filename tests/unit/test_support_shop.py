"""The shop: a real database with real constraints, and what has changed in it."""

import sqlite3

import pytest

from ferrata.envs.support.people import ShopRows
from ferrata.envs.support.shop import Shop, contains, difference
from ferrata.envs.tools import ToolError


def rows() -> dict[str, list[list[object]]]:
    made = ShopRows()
    made.add_customer("Anna Berg", "4 Mill Lane", 7713)
    made.add_order(4127, "Anna Berg", {"kettle": 49, "lamp": 64}, "delivered", 12)
    made.add_order(4130, "Anna Berg", {"rug": 230}, "processing")
    return made.rows


@pytest.fixture
def shop():
    made = Shop()
    made.reset(rows())
    yield made
    made.close()


def test_rows_go_in_and_come_out_unchanged(shop: Shop) -> None:
    assert difference(rows(), shop.rows()) == []
    again = shop.rows()
    shop.reset(again)
    assert shop.rows() == again


def test_effects_are_seen_as_changes(shop: Shop) -> None:
    shop.change_address("Anna Berg", "18 Elm Road")
    shop.refund(4127, 49)
    assert shop.cancel(4130) == 230
    shop.open_ticket(318, 4127, "broken")
    assert difference(rows(), shop.rows()) == [
        "customers Anna Berg address = 18 Elm Road",
        "orders 4130 status = cancelled",
        "payments + 4127 refund 49",
        "payments + 4130 refund 230",
        "tickets + 4127",
    ]


def test_what_is_gone_and_what_comes_twice_is_seen() -> None:
    before = rows()
    without = {**before, "policies": before["policies"][1:]}
    assert difference(before, without) == [f"policies - {before['policies'][0][0]}"]
    assert contains(["a", "a", "b"], ["a", "a"])
    assert not contains(["a", "b"], ["a", "a"])


def test_a_second_refund_is_known_as_one(shop: Shop) -> None:
    assert not shop.refunded_before(4127, 49)
    shop.refund(4127, 49)
    assert shop.refunded_before(4127, 49)
    assert not shop.refunded_before(4127, 64)
    assert shop.refunded_before(4127, 65)


def test_look_ups_forgive_case_and_name_what_is_missing(shop: Shop) -> None:
    assert shop.customer(" anna BERG ")["name"] == "Anna Berg"
    assert shop.order(4127.0)["number"] == 4127
    assert shop.shipment(4130) is None
    for number in (1, -1, 10**400, 1e300, 0.5):
        with pytest.raises(ToolError, match="no order"):
            shop.order(number)
    with pytest.raises(ToolError, match=r"Topics: address, cancel"):
        shop.policy("rebate")


def test_the_database_holds_its_own_rules(shop: Shop) -> None:
    with pytest.raises(sqlite3.IntegrityError):
        shop.open_ticket(1, 9999, "no such order")
    with pytest.raises(sqlite3.IntegrityError):
        shop.refund(4127, 0)


def test_a_shop_that_cannot_be_filled_leaves_the_database_usable(shop: Shop) -> None:
    with pytest.raises(sqlite3.Error):
        shop.reset({"orders": [[1, "Nobody", "processing"]]})
    shop.reset(rows())
    assert shop.order(4127)["status"] == "delivered"

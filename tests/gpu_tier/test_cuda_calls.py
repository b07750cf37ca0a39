"""The CUDA path, by the real bindings against the stand-in driver: arguments, errors, leaks."""

from __future__ import annotations

import pytest

from fakes.cuda_stand_in import play
from fakes.device_world import MIB

NOTHING = dict.fromkeys(["memory", "mappings", "addresses", "pins", "streams", "contexts"], 0)
CARD = "GPU-01020304-0506-0708-090a-0b0c0d0e0f00"
MISMATCH = "NVML: Driver/library version mismatch"


def test_a_content_goes_to_the_card_and_out_by_descriptors_and_all_is_given_back(
    stand_in, tmp_path
):
    found = play(stand_in, "whole_way", tmp_path)
    assert found["right"] == [True, True]
    assert not any(found["inherited"])
    assert not found["emulated"]
    assert found["loaded"] == len(found["extents"]) == 4
    assert found["during"]["memory"] == found["during"]["addresses"] == 4
    assert found["held"] == sum(found["extents"])
    assert found["after"] == NOTHING


@pytest.mark.parametrize(
    ("script", "good"),
    [
        pytest.param("init=18", 0, id="C63 from the start"),
        # Opening asks once, and each look and each load once.
        pytest.param("init=18 init_after=100", 97, id="C63 from the hundredth call on"),
    ],
)
def test_C63_a_driver_that_does_not_match_is_a_state_until_it_does(
    stand_in, tmp_path, script, good
):
    found = play(stand_in, "mismatch", tmp_path, nvml=script)
    assert found["good"] == good
    assert found["held_while_good"] == good
    assert found["held_after"] == 0
    assert set(found["texts"]) - {""} == {MISMATCH}
    assert found["at_first"] == ("loaded" if good else f"GpuUnavailable: {MISMATCH}")
    assert found["then"] == "loaded"
    assert found["sessions"] == 0


def test_a_card_that_cannot_be_opened_says_why(stand_in):
    scripts = {
        "init=803": "SYSTEM_DRIVER_MISMATCH",
        "init=100": "NO_DEVICE",
        "devices=0": "INVALID_DEVICE",
        "vmm=0": "VIRTUAL_MEMORY_MANAGEMENT",
    }
    found = play(stand_in, "openings", *scripts)
    assert {card["error"] for card in found} == {"DeviceUnavailableError"}
    for card, words in zip(found, scripts.values(), strict=True):
        assert words in card["text"]


def test_a_card_that_has_fallen_off_is_lost_and_says_so(stand_in):
    [found] = play(stand_in, "openings", "", nvml="query=15")
    assert found == {"error": "DeviceLostError", "text": "NVML: GPU is lost"}


def test_C64_the_parent_of_instances_refuses_and_the_instances_are_counted(stand_in, tmp_path):
    found = play(stand_in, "cards", tmp_path / "none", nvml="memory=4 mig=2 used=5")
    parent, *instances = found
    assert parent == [CARD, None, None, False]
    assert [card[1:] for card in instances] == [[4 << 30, 5, False]] * 2
    assert {card[0][:4] for card in instances} == {"MIG-"}


def test_C64_a_card_on_host_memory_has_the_hosts_figures_and_says_so(stand_in, tmp_path):
    info = tmp_path / "meminfo"
    info.write_text("MemTotal:  1000 kB\nMemFree: 1 kB\nMemAvailable:  400 kB\n")
    found = play(stand_in, "cards", info, nvml="memory=3")
    assert found == [[CARD, 1000 * 1024, 600 * 1024, True]]
    assert play(stand_in, "cards", tmp_path / "none", nvml="memory=3")[0][1:] == [None, None, True]


def test_C64_without_libraries_there_is_no_card_and_no_error(no_driver, tmp_path):
    assert play(no_driver, "cards", tmp_path / "none") is None
    [found] = play(no_driver, "openings", "")
    assert found["error"] == "DeviceUnavailableError"
    assert "cuInit" in found["text"]


def test_C64_without_figures_of_nvml_the_drivers_own_serve(stand_in):
    script = f"total={8 << 30} foreign={MIB}"
    [found] = play(stand_in, "openings", script, nvml="memory=4")
    assert found == {"found": [CARD, 8 << 30, MIB, False], "after": NOTHING}


def test_C65_what_cannot_be_page_locked_is_copied_all_the_same(stand_in, tmp_path):
    expected = {
        "": (4, None),
        "pin_nth=7": (2, "2 of 4 buffers"),  # the first round has made four
        f"pin_most={16 * MIB}": (2, "2 of 4 buffers"),
        "pin_most=1": (0, "0 of 4 buffers"),
    }
    rounds = play(stand_in, "pins", tmp_path, *expected)
    for found, (pinned, why) in zip(rounds, expected.values(), strict=True):
        assert found["outcomes"] == ["loaded", "verified"]
        assert found["pinned"] == pinned * 8 * MIB
        assert (found["why"] is None) if why is None else (why in found["why"])
        assert found["after"] == NOTHING


def test_C65_page_locking_that_takes_long_holds_nothing_up(stand_in, tmp_path):
    found = play(stand_in, "slow_pins", tmp_path, cuda="pin_seconds=3")
    assert found["outcome"] == "loaded"
    assert found["why"] == "memory is being page-locked"
    assert found["took"] < 12, "so long all four would take"
    assert found["after"] == NOTHING


def test_C65_nothing_is_never_page_locked(stand_in):
    assert "at least one byte" in play(stand_in, "empty_ring")


def test_C66_500_rounds_beside_others_leave_nothing(stand_in, tmp_path):
    card = f"total={200 * MIB}"
    found = play(
        stand_in,
        "rounds",
        tmp_path,
        cuda=f"{card} foreign={180 * MIB}",
        nvml=f"{card} used={180 * MIB}",
    )
    assert found["outcomes"]["loaded"] > 50
    assert found["outcomes"]["GpuOutOfMemory"] > 5
    assert found["same"]
    assert found["descriptors"] == 0
    assert found["end"] == NOTHING


def test_C66_a_card_that_refuses_is_asked_once_more_and_never_for_what_others_have(
    stand_in, tmp_path
):
    found = play(stand_in, "refused", tmp_path)
    assert found["first"] == found["after"] == "loaded"
    assert found["alone"].startswith("GpuOutOfMemory: ")
    assert found["evicting"].startswith("GpuOutOfMemory: it was tried twice")
    assert "(OUT_OF_MEMORY)" in found["alone"]
    assert "(OUT_OF_MEMORY)" in found["evicting"]
    assert found["held"] == []
    assert found["capacity"] == found["held_bytes"] == 8 * MIB
    assert found["surplus"] == 0, "others have what was free, not what is ours"


def test_whatever_call_fails_half_way_what_was_made_before_is_given_back(stand_in, tmp_path):
    calls = {
        "reserve=2": "cuMemAddressReserve",
        "map=2": "cuMemMap",
        "access=2": "cuMemSetAccess",
        "export=999": "cuMemExportToShareableHandle",
    }
    found = play(stand_in, "half_way", tmp_path, *calls, "stream=2")
    for words, call in calls.items():
        outcome, leaked, live = found[words]
        assert outcome.startswith("Gpu")
        assert call in outcome
        assert (leaked, live) == (0, NOTHING)
    assert found["stream=2"] == ["loaded", 0, NOTHING], "without a stream copies are pageable"


def test_a_card_that_dies_during_a_load_is_opened_anew(stand_in, tmp_path):
    found = play(stand_in, "lost", tmp_path, cuda="lost_after=2")
    assert found["outcome"].startswith("GpuUnavailable: ")
    assert "ECC_UNCORRECTABLE" in found["outcome"]
    is_available, held, live = found["state"]
    assert (is_available, held, live) == (False, 0, NOTHING)
    assert found["then"] == "loaded"

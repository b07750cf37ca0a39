"""Flags, environment, defaults, and what is said about wrong ones."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path

import pytest

from modelcache_agent.config import OPTIONS, Config, ConfigError, parse_config
from modelcache_agent.decide.policies import POLICIES
from modelcache_agent.entry import _PROGRAMS

NEEDED = ["--store=/store", "--operator-url=https://operator:8443"]


def test_defaults():
    config = parse_config(NEEDED, {})
    assert config.store == Path("/store")
    assert (config.capacity, config.kubeconfig, config.node_name) == (None, None, None)
    assert config.max_bandwidth is None
    assert (config.lease_interval, config.relabel_interval) == (60.0, 1800.0)
    assert (config.streams, config.max_models, config.metrics_port) == (4, 2, 9404)
    assert (config.namespace, config.log_level) == ("modelcache-system", "info")
    assert config.require_mountpoint is False


def test_help_names_every_program(capsys):
    with pytest.raises(SystemExit):
        parse_config(["--help"], {})
    told = capsys.readouterr().out.partition("options:")[0].replace(",", " ").split()
    assert set(_PROGRAMS) <= set(told)


def test_every_field_is_an_option():
    assert {option.field for option in OPTIONS} == {field.name for field in fields(Config)}


def test_C38_a_flag_beats_the_environment_that_beats_the_default():
    environment = {"MODELCACHE_AGENT_STREAMS": "8", "MODELCACHE_AGENT_MAX_MODELS": "3"}
    config = parse_config([*NEEDED, "--streams=16"], environment)
    assert (config.streams, config.max_models) == (16, 3)


def test_the_environment_alone_is_enough():
    environment = {
        "MODELCACHE_AGENT_STORE": "/s",
        "MODELCACHE_AGENT_OPERATOR_URL": "https://o",
        "MODELCACHE_AGENT_REQUIRE_MOUNTPOINT": "true",
    }
    config = parse_config([], environment)
    assert config.store == Path("/s")
    assert config.require_mountpoint is True


@pytest.mark.parametrize(
    ("arguments", "read"),
    [
        (["--capacity=10Gi"], {"capacity": 10 << 30}),
        (["--max-bandwidth=1.5Gi"], {"max_bandwidth": 3 << 29}),
        ([], {"scrub_interval": 7 * 24 * 3600.0, "scrub_bandwidth": 50 << 20}),
        ([], {"disk_policy": POLICIES["lru"]}),
        ([], {"host_capacity": 0}),
        (["--host-capacity=64Gi"], {"host_capacity": 64 << 30}),
        (["--disk-policy=value"], {"disk_policy": POLICIES["value"]}),
        (["--scrub-interval=never"], {"scrub_interval": None}),
        (["--scrub-bandwidth=1Mi"], {"scrub_bandwidth": 1 << 20}),
        (["--require-mountpoint"], {"require_mountpoint": True}),
        (["--require-mountpoint=false"], {"require_mountpoint": False}),
        (["--lease-interval=500ms"], {"lease_interval": 0.5}),
        (["--relabel-interval=2h"], {"relabel_interval": 7200.0}),
        (["--metrics-port=0"], {"metrics_port": 0}),
        (["--log-level=DEBUG"], {"log_level": "debug"}),
        (
            ["--operator-url=https://o.ns.svc:8443/base"],
            {"operator_url": "https://o.ns.svc:8443/base"},
        ),
    ],
)
def test_good_values(arguments, read):
    config = parse_config([*NEEDED, *arguments], {})
    assert {name: getattr(config, name) for name in read} == read


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--capacity=ten"], r"--capacity: 'ten' is not a quantity.*500Gi"),
        (["--capacity=0"], r"--capacity: 0 bytes hold nothing"),
        (["--streams=0"], r"--streams: '0' is not a whole number from 1 to 64"),
        (["--max-models=x"], r"--max-models: 'x'"),
        (["--max-bandwidth=fast"], r"--max-bandwidth: 'fast' is not a number of bytes.*500Mi"),
        (["--max-bandwidth=500Mbit"], r"--max-bandwidth: '500Mbit'"),
        (["--max-bandwidth=0"], r"--max-bandwidth: '0' bytes a second are too few.*leave it out"),
        (["--disk-policy=random"], r"--disk-policy: 'random' is no policy.*reproduced.*value"),
        (["--disk-policy=arc"], r"--disk-policy: 'arc' is not one of lru, lfu"),
        (["--scrub-interval=off"], r"--scrub-interval: 'off' is not a duration.*168h, or never"),
        (["--scrub-bandwidth=64Ki"], r"--scrub-bandwidth: '64Ki' bytes a second are too few.*1Mi"),
        (["--scrub-bandwidth=fast"], r"--scrub-bandwidth: 'fast' is not a number of bytes"),
        (["--lease-interval=soon"], r"--lease-interval: 'soon' is not a duration.*60s"),
        (["--lease-interval=0s"], r"--lease-interval"),
        (["--operator-url=http://o"], r"--operator-url: 'http://o' is not an https://"),
        (["--operator-url=https://user@o"], r"--operator-url"),
        (["--log-level=loud"], r"--log-level: 'loud' is not one of debug"),
        (["--require-mountpoint=maybe"], r"--require-mountpoint: 'maybe'"),
        (["--disk-high-watermark=101"], r"--disk-high-watermark: '101' .* from 2 to 100"),
        (["--input-log=1Ki"], r"--input-log: '1Ki' holds no world"),
        (["--min-residency=0"], r"--min-residency: '0' is not a duration"),
        (["--metrics-port=70000"], r"--metrics-port"),
        (["--node-name="], r"--node-name: it is empty"),
        (["--stor=/x"], r"unrecognized arguments: --stor=/x: see --help"),
    ],
)
def test_bad_values_name_the_option_and_the_cure(arguments, says):
    with pytest.raises(ConfigError, match=says):
        parse_config([*NEEDED, *arguments], {})


def test_a_bad_variable_is_named_too():
    with pytest.raises(ConfigError, match="MODELCACHE_AGENT_STREAMS: 'many'"):
        parse_config(NEEDED, {"MODELCACHE_AGENT_STREAMS": "many"})


def test_a_missing_option_is_named_with_its_variable():
    with pytest.raises(ConfigError, match=r"--store \(or MODELCACHE_AGENT_STORE\) is missing"):
        parse_config(["--operator-url=https://o"], {})

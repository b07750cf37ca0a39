from __future__ import annotations

from pathlib import Path

import pytest

from modelcache_operator.config import Bind, ConfigError, load_config


def load(*arguments: str, **environment: str):
    prefixed = {f"MODELCACHE_OPERATOR_{name}": value for name, value in environment.items()}
    return load_config(arguments, prefixed, hostname="pod-1")


def test_defaults_are_those_of_the_chart():
    config = load()
    assert config.namespace == "modelcache-system"
    assert config.grants_bind == Bind("0.0.0.0", 8443)
    assert config.grants_names == (
        "modelcache-operator.modelcache-system.svc",
        "modelcache-operator.modelcache-system.svc.cluster.local",
    )
    assert (config.http_port, config.identity, config.leader_elect) == (8080, "pod-1", True)
    assert (config.agent_lost_after_seconds, config.silence_limit_seconds) == (300, 600)
    assert config.kubeconfig is config.source_policy is config.hub_endpoint is None
    assert (config.http_routes, config.prometheus_url) == (False, None)
    assert config.prometheus_ca_file is config.prometheus_token_file is None


def test_a_flag_beats_the_environment_which_beats_the_default():
    assert load(HTTP_PORT="1").http_port == 1
    assert load("--http-port=2", HTTP_PORT="1").http_port == 2


def test_values_are_parsed_once(tmp_path: Path):
    file = tmp_path / "kubeconfig"
    file.touch()
    config = load(
        f"--kubeconfig={file}",
        "--grants-bind=[::1]:0",
        "--grants-names= localhost, 127.0.0.1 ,",
        "--agent-lost-after=5m",
        "--lease-list-interval=2",
        "--leader-elect=False",
        "--log-level=DEBUG",
        "--hub-endpoint=http://mirror:8080/hf/",
    )
    assert config.hub_endpoint == "http://mirror:8080/hf"
    assert config.kubeconfig == file
    assert config.grants_bind == Bind("::1", 0)
    assert config.grants_names == ("localhost", "127.0.0.1")
    assert (config.agent_lost_after_seconds, config.lease_list_interval_seconds) == (300, 2)
    assert (config.leader_elect, config.log_level) == (False, "debug")


@pytest.mark.parametrize(
    ("argument", "words"),
    [
        ("--http-port=web", "write a port"),
        ("--hub-endpoint=mirror", "write it like https://hub.example.com"),
        ("--hub-endpoint=http://u:p@mirror", "write it like https://hub.example.com"),
        ("--http-port=70000", "write a port"),
        ("--http-routes=yes", "true or false"),
        ("--prometheus-url=prometheus:9090", "write it like https://prometheus"),
        ("--prometheus-url=ftp://prometheus", "write it like https://prometheus"),
        ("--prometheus-url=http://u:p@prometheus", "write it like https://prometheus"),
        ("--prometheus-url=http://prometheus:port", "write it like https://prometheus"),
        ("--prometheus-url=http://prometheus/?a=b", "write it like https://prometheus"),
        ("--prometheus-ca-file=/nowhere/at-all", "there is no file"),
        ("--grants-bind=8443", "write host:port"),
        ("--grants-names=,", "separated by commas"),
        ("--agent-lost-after=soon", "for example 300s"),
        ("--agent-lost-after=0", "above zero"),
        ("--agent-lost-after=59s", "write at most 9.8"),
        ("--lease-list-interval=60s", "write at most 50s"),
        ("--lease-list-interval=-1s", "above zero"),
        ("--workers=0", "above zero"),
        ("--api-writes-per-second=x", "above zero"),
        ("--kubeconfig=/nowhere/at-all", "there is no file"),
        ("--leader-elect=maybe", "true or false"),
        ("--log-level=loud", "one of"),
        ("--namespace=", "must not be empty"),
    ],
)
def test_a_bad_value_names_the_option_and_the_cure(argument, words):
    with pytest.raises(ConfigError) as refused:
        load(argument)
    assert argument.partition("=")[0] in str(refused.value)
    assert words in str(refused.value)


def test_a_bad_value_in_the_environment_names_the_variable():
    with pytest.raises(ConfigError, match="MODELCACHE_OPERATOR_WORKERS='many'"):
        load(WORKERS="many")


@pytest.mark.parametrize("arguments", [["--wrkers=3"], ["--work=3"], ["stray"], ["--workers"]])
def test_unknown_or_unfinished_options_are_refused(arguments):
    with pytest.raises(ConfigError, match="--help"):
        load(*arguments)


def test_a_token_is_sent_over_https_alone(tmp_path: Path):
    token, ca = tmp_path / "token", tmp_path / "ca.crt"
    token.touch()
    ca.touch()
    given = f"--prometheus-token-file={token}", f"--prometheus-ca-file={ca}"
    config = load("--prometheus-url=https://prometheus:9090/tenant", *given)
    assert config.prometheus_url == "https://prometheus:9090/tenant"
    assert (config.prometheus_token_file, config.prometheus_ca_file) == (token, ca)
    for flag in given:
        with pytest.raises(ConfigError, match=r"goes with a --prometheus-url .* https://"):
            load("--prometheus-url=http://prometheus:9090", flag)

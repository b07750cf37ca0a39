"""What is read from files that other programs write."""

import json

import pytest
import yaml

from modelcache_testbed.audit import AuditLog
from modelcache_testbed.errors import TestbedError
from modelcache_testbed.kubeconfig import read_connection, write_token_kubeconfig


def event(**values):
    return {
        "stage": "ResponseComplete",
        "verb": "get",
        "requestURI": "/api/v1/pods",
        "user": {"username": "ann"},
        "userAgent": "tool/1",
        "responseStatus": {"code": 200},
        **values,
    }


@pytest.fixture
def log(tmp_path):
    def write(*events):
        text = "".join(json.dumps(e) + "\n" for e in events)
        (tmp_path / "audit.log").write_text(text)
        return AuditLog(tmp_path / "audit.log")

    return write


def test_denied_requests_are_listed(log):
    target = {"resource": "secrets", "namespace": "a", "name": "key"}
    denied = log(event(), event(responseStatus={"code": 403}, objectRef=target)).denied()
    assert [(e.user, e.resource, e.namespace, e.name) for e in denied] == [
        ("ann", "secrets", "a", "key")
    ]


def test_a_watch_counts_once(log):
    watch = event(verb="watch", stage="ResponseStarted")
    assert log(watch, event(verb="watch"), event()).count_by_user_agent() == {"tool/1": 2}


def test_a_watch_that_was_refused_counts(log):
    refused = event(verb="watch", responseStatus={"code": 403})
    assert log(refused).count_by_user() == {"ann": 1}


def test_only_what_follows_a_position_is_read(log):
    audit = log(event())
    since = audit.position()
    with audit.file.open("a") as file:
        file.write(json.dumps(event(user={"username": "bob"})) + "\n" + '{"half')
    assert audit.count_by_user(since) == {"bob": 1}


def test_no_log_yet_is_an_empty_log(tmp_path):
    audit = AuditLog(tmp_path / "none")
    assert (audit.position(), list(audit.events())) == (0, [])


def test_a_token_is_read_from_its_file(tmp_path):
    (tmp_path / "ca.crt").write_text("authority")
    (tmp_path / "token").write_text("secret\n")
    path = tmp_path / "kubeconfig"
    write_token_kubeconfig(path, "https://127.0.0.1:1", tmp_path / "ca.crt", tmp_path / "token")
    connection = read_connection(path)
    assert (connection.token, connection.authority) == ("secret", "authority")
    assert path.stat().st_mode & 0o077 == 0


def test_a_kubeconfig_with_a_plug_in_is_refused(tmp_path):
    path = tmp_path / "kubeconfig"
    document = {
        "clusters": [{"name": "c", "cluster": {"server": "https://x"}}],
        "users": [{"name": "u", "user": {"exec": {"command": "login"}}}],
        "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}],
        "current-context": "x",
    }
    path.write_text(yaml.safe_dump(document))
    with pytest.raises(TestbedError, match="plug-in"):
        read_connection(path)

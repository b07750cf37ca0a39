"""One event, one line."""

from __future__ import annotations

import logging

from modelcache_agent.log import LineFormatter
from modelcache_api.log_fields import about


def line(message, *args, **more) -> str:
    record = logging.LogRecord("modelcache_agent.loop", 20, "f", 1, message, args, None, **more)
    return LineFormatter().format(record)


def test_time_level_name_and_text():
    text = line("uid=%s", "u1")
    assert text.endswith("Z info loop: uid=u1")


def test_hostile_text_stays_in_its_line():
    text = line("key=%s", "a\nERROR fake: \x1b[31m")
    assert "\n" not in text
    assert "\x1b" not in text
    assert "a\\nERROR" in text


def test_each_line_tells_node_and_subject():
    record = logging.LogRecord("modelcache_agent.errands", 30, "f", 1, "uid=u1 slow", (), None)
    with about(uid="u1", model="m1", trace="t"):
        assert LineFormatter("n1").format(record).endswith("uid=u1 slow node=n1 model=m1 trace=t")


def test_an_errors_words_come_before_what_the_line_is_about():
    error = ValueError("the store says: denied node=n9 trace=t9")
    info = (ValueError, error, None)
    record = logging.LogRecord("modelcache_agent.loop", 40, "f", 1, "a bug", (), info)
    with about(trace="t"):
        assert LineFormatter("n1").format(record).endswith("trace=t9 node=n1 trace=t")

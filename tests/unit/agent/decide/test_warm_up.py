"""What a server that has just started is asked, and what its answers mean."""

from __future__ import annotations

import json

import pytest

from modelcache_agent.decide.warm_up import (
    DEFAULT_BODY,
    Address,
    Outcome,
    build_body,
    judge_answer,
    parse_address,
)


@pytest.mark.parametrize("tokens", [1, 2, 512])
def test_the_dummy_prompt_has_as_many_words_as_tokens_are_asked_for(tokens):
    body = json.loads(build_body(DEFAULT_BODY, tokens))
    assert len(body["prompt"].split()) == tokens
    assert body["max_tokens"] == 1


def test_a_body_without_a_place_for_the_prompt_is_sent_as_it_is():
    assert build_body('{"inputs": [1, 2]}', 512) == b'{"inputs": [1, 2]}'


def test_a_body_that_is_no_json_is_refused_with_an_example():
    with pytest.raises(ValueError, match=r"not JSON.*max_tokens"):
        build_body("prompt={prompt}", 3)


@pytest.mark.parametrize(
    ("url", "address"),
    [
        ("http://localhost:8000/v1/completions", ("localhost", 8000, "/v1/completions")),
        ("http://127.0.0.1", ("127.0.0.1", 80, "/")),
        ("http://[::1]:9/x?y=z", ("::1", 9, "/x?y=z")),
    ],
)
def test_addresses(url, address):
    assert parse_address(url) == Address(*address)


@pytest.mark.parametrize("url", ["localhost:8000", "https://localhost/", "http://", "/v1", ""])
def test_what_is_no_address_is_refused_with_an_example(url):
    with pytest.raises(ValueError, match="write http://localhost:8000/v1/completions"):
        parse_address(url)


@pytest.mark.parametrize(
    ("status", "outcome"),
    [
        (200, Outcome.WARM),
        (204, Outcome.WARM),
        (301, Outcome.REFUSED),
        (400, Outcome.REFUSED),
        (401, Outcome.REFUSED),
        (404, Outcome.NOT_YET),
        (422, Outcome.REFUSED),
        (429, Outcome.NOT_YET),
        (500, Outcome.NOT_YET),
        (503, Outcome.NOT_YET),
    ],
)
def test_what_an_answer_means(status, outcome):
    assert judge_answer(status, "").outcome is outcome


def test_the_words_of_the_server_are_told_on_one_short_line():
    message = judge_answer(422, "no\n\tsuch  field" + "x" * 1000).message
    assert message.startswith("the server answers 422: no such field")
    assert len(message) < 200

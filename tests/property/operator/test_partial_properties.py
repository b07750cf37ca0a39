"""Whatever the file and the globs: the smaller file holds the tensors that it should."""

from __future__ import annotations

import json
import math
import struct

import pytest
import safetensors
from hypothesis import example, given, settings
from hypothesis import strategies as st

from fakes.safetensors_kit import ACCEPTED, K01, REFUSED, make, tensor
from modelcache_agent.decide.content_check import describe_content_fault
from modelcache_agent.decide.cut_plan import MAX_GAP_BYTES, Literal, plan_reads
from modelcache_api.cut import MAX_LITERAL_BYTES, Cut
from modelcache_api.keys import matches_tensor
from modelcache_api.manifest import SourceFile, make_source_manifest, pack_source, unpack_source
from modelcache_api.safetensors_format import DTYPE_BITS
from modelcache_api.wire import GrantedCut
from modelcache_operator.ports.sources import SourceError
from modelcache_operator.sources.partial.cutting import cut_file, take_tensors
from modelcache_operator.sources.partial.windows import SourceWindow

NAMES = st.text('ab.é"\\/01', min_size=1, max_size=6)
GLOBS = st.lists(st.text("ab.*?01", min_size=1, max_size=4), min_size=1, max_size=3)
TENSORS = st.dictionaries(
    NAMES,
    st.tuples(st.sampled_from(sorted(DTYPE_BITS)), st.lists(st.integers(0, 4), max_size=3)).filter(
        lambda one: DTYPE_BITS[one[0]] * math.prod(one[1]) % 8 == 0
    ),
    max_size=8,
)


@st.composite
def files(draw):
    """A file with its tensors in any order, and metadata or none."""
    tensors = draw(TENSORS)
    header, position = {}, 0
    for name, (dtype, shape) in tensors.items():
        end = position + DTYPE_BITS[dtype] * math.prod(shape) // 8
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [position, end]}
        position = end
    order = draw(st.permutations(sorted(header)))
    document = {name: header[name] for name in order}
    if draw(st.booleans()):
        document["__metadata__"] = {"format": "pt", "a": "é"}
    text = json.dumps(document).encode()
    return struct.pack("<Q", len(text)) + text + draw(st.randoms()).randbytes(position)


def source(body, path="model.safetensors"):
    return SourceFile(path, len(body), '"e"', sha256="a" * 64)


def take(body, globs):
    return take_tensors(source(body), lambda at, length: body[at : at + length], globs)


def assemble(cut, body):
    return cut.literal + b"".join(body[start:end] for start, end in cut.ranges)


def read_all(body):
    return dict(safetensors.deserialize(body))


@settings(max_examples=60)
@given(files(), GLOBS)
@example(K01, ["a"])
def test_the_smaller_file_holds_the_wanted_tensors_and_is_the_same_every_time(body, globs):
    cut = cut_file(source(body), take(body, globs))
    small = assemble(cut, body)
    whole = read_all(body)
    wanted = {
        name: tensor
        for name, tensor in whole.items()
        if any(matches_tensor(name, glob) for glob in globs)
    }
    assert read_all(small) == wanted
    assert len(small) == cut.size_bytes
    assert cut == cut_file(source(body), take(body, globs))
    assert all(one[1] != two[0] for one, two in _neighbours(cut)), "neighbours are one range"
    fault = describe_content_fault("a.safetensors", len(small), lambda a, n: small[a : a + n])
    assert fault is None
    begin = 8 + struct.unpack("<Q", small[:8])[0]
    assert begin % 8 == 0
    for entry in json.loads(small[8:begin]).values():
        if "dtype" in entry and entry["data_offsets"][0] != entry["data_offsets"][1]:
            assert entry["data_offsets"][0] % max(1, DTYPE_BITS[entry["dtype"]] // 8) == 0


def _neighbours(cut):
    return zip(cut.ranges, cut.ranges[1:], strict=False)


@settings(max_examples=20)
@given(files(), GLOBS)
def test_a_cut_is_kept_and_sent_as_it_is(body, globs):
    cut = cut_file(source(body), take(body, globs))
    file = SourceFile("m.safetensors", cut.size_bytes, '"e"', cut=cut)
    left_out = SourceFile("other.safetensors", 5, '"o"')
    manifest = make_source_manifest([file], None, [left_out])
    assert unpack_source(pack_source(manifest)) == manifest
    assert file.whole == SourceFile("m.safetensors", len(body), '"e"', sha256="a" * 64)
    sent = GrantedCut.model_validate_json(GrantedCut.of(cut).model_dump_json(by_alias=True)).cut
    assert (sent.literal, sent.ranges, sent.digest) == (cut.literal, cut.ranges, cut.digest)


CUTS = st.builds(
    lambda literal, spans: Cut(10**9, literal, tuple((a, a + n) for a, n in spans)),
    st.binary(max_size=9),
    st.lists(
        st.tuples(st.integers(0, 4) | st.integers(0, 3 * MAX_GAP_BYTES), st.integers(1, 5)),
        max_size=6,
    ),
)


@given(CUTS, st.data())
def test_requests_bring_what_was_asked_for_and_little_more(cut, data):
    start = data.draw(st.integers(0, cut.size_bytes))
    end = data.draw(st.integers(start, cut.size_bytes))
    wanted = [*cut.literal, *(at for span in cut.ranges for at in range(*span))][start:end]
    found = []
    for step in plan_reads(cut, start, end):
        if isinstance(step, Literal):
            found += step.data
            continue
        assert step.start == step.kept[0][0]
        assert step.end == step.kept[-1][1]
        position = step.start
        for begin, stop in step.kept:
            assert 0 <= begin - position <= MAX_GAP_BYTES, "forwards, and no large gap"
            found += range(begin, stop)
            position = stop
    assert found == wanted


@pytest.mark.parametrize("name", ACCEPTED)
def test_C26_whatever_the_reference_reader_accepts_can_be_taken_whole(name):
    body = ACCEPTED[name]
    assert read_all(assemble(cut_file(source(body), take(body, ["*"])), body)) == read_all(body)


@pytest.mark.parametrize("name", REFUSED)
def test_whatever_the_reference_reader_refuses_is_not_cut(name):
    with pytest.raises(SourceError) as caught:
        take(REFUSED[name], ["*"])
    assert caught.value.reason == "NotAModel"
    assert "'model.safetensors'" in caught.value.message


@given(st.sampled_from(sorted(ACCEPTED)), st.data())
def test_headers_that_somebody_has_changed_are_cut_soundly_or_refused(name, data):
    body = bytearray(ACCEPTED[name])
    for _ in range(data.draw(st.integers(1, 3))):
        at = data.draw(st.integers(0, len(body) - 1))
        body[at] = data.draw(st.integers(0, 255))
    try:
        cut = cut_file(source(body), take(bytes(body), ["*"]))
    except SourceError:
        return
    assert read_all(assemble(cut, bytes(body))) == read_all(bytes(body))


@pytest.mark.parametrize("dtype", ["BF16", "F8_E4M3", "F8_E8M0", "F4", "F6_E3M2"])
def test_C25_types_that_numpy_does_not_know_are_cut_as_they_are(dtype):
    size = 16 * DTYPE_BITS[dtype] // 8
    header = {
        name: tensor(dtype, [16], number * size, (number + 1) * size)
        for number, name in enumerate("abc")
    }
    body = make(header, bytes(range(3 * size)))
    small = read_all(assemble(cut_file(source(body), take(body, ["b"])), body))
    assert small == {"b": read_all(body)["b"]}


def test_C24_of_very_many_tensors_a_few_are_found_and_no_more_is_held():
    names = [f"layers.{number}.w" for number in range(30_000)]
    header = {name: tensor("U8", [1], at, at + 1) for at, name in enumerate(names)}
    body = make(header, bytes(len(names)))
    taken = take(body, ["layers.7.*", "layers.2999?.w"])
    assert len(taken.tensors) == 11
    assert cut_file(source(body), taken).size_bytes < 2_000


def test_C24_a_header_over_the_limit_of_the_format_is_refused_before_it_is_read():
    asked = []

    def read(at, length):
        asked.append(length)
        return struct.pack("<Q", 100_000_001)[at : at + length]

    with pytest.raises(SourceError, match="claims 100000001 bytes, the limit is 100000000"):
        take_tensors(SourceFile("m.safetensors", 10**9, '"e"'), read, ["*"])
    assert asked == [8]


def test_more_tensors_than_can_be_described_to_nodes_are_refused(monkeypatch):
    monkeypatch.setattr("modelcache_operator.sources.partial.cutting.MAX_LITERAL_BYTES", 100)
    with pytest.raises(SourceError, match="too many single tensors") as caught:
        take(K01, ["*"])
    assert caught.value.reason == "SourceInvalid"


def test_the_largest_literal_is_granted():
    cut = Cut(10, bytes(MAX_LITERAL_BYTES), ((0, 10),))
    assert GrantedCut.model_validate_json(GrantedCut.of(cut).model_dump_json()).cut == cut


def test_one_endless_entry_of_a_header_is_given_up_with_bounded_memory():
    asked = []
    size, length = 10**9, 99_000_000
    start = struct.pack("<Q", length) + b'{"__metadata__":{"a":"'

    def fetch(begin, end):
        asked.append(end - begin)
        return start.ljust(end, b"x")[begin:end] if begin == 0 else b"x" * (end - begin)

    window = SourceWindow(size, fetch)
    with pytest.raises(SourceError, match="too many single tensors"):
        take_tensors(SourceFile("m.safetensors", size, '"e"'), window.read, ["*"])
    assert sum(asked) < 4 * MAX_LITERAL_BYTES

"""Clients of servers that freeze, or that answer with something else than they promise."""

from contextlib import closing
from dataclasses import replace

import numpy as np
import pytest
from naming import naming

from mrcfa import Stream
from mrcfa.errors import Damaged, RuntimeFailed

pytest.importorskip("tritonclient.grpc", reason="Triton: not run (no tritonclient)")
from rogue_triton import FRAME, SERVED, RogueTriton

IMAGE = np.zeros((*FRAME, 3), np.uint8)


@pytest.fixture
def rogue():
    with closing(RogueTriton()) as server:
        yield server


def test_an_answer_as_promised_is_a_mask(rogue):
    with Stream(rogue.address) as stream:
        assert stream(IMAGE).shape == FRAME


@pytest.mark.parametrize(
    ("answer", "size"),
    [
        ({"shape": [1, 3, 4]}, 12),
        ({"shape": [1, 160, 96]}, 15360),
        ({"shape": [96, 160]}, 15360),
        ({"datatype": "FP32"}, 4 * 15360),
        ({"datatype": "COMPLEX"}, 15360),
        ({"datatype": "BYTES", "shape": [1]}, 4),
        ({"name": "other"}, 15360),
        ({}, 7),
        ({}, 0),
    ],
    ids=str,
)
def test_an_answer_that_is_not_what_was_promised_is_an_error(answer, size, rogue):
    rogue.answer, rogue.content = {**rogue.answer, **answer}, bytes(size)
    with Stream(rogue.address) as stream, pytest.raises(RuntimeFailed, match=naming(rogue.address)):
        stream(IMAGE)


def test_a_class_that_the_model_does_not_have_is_an_error(rogue):
    rogue.content = bytes([124]) * len(rogue.content)
    with Stream(rogue.address) as stream, pytest.raises(RuntimeFailed, match=naming(124)):
        stream(IMAGE)


@pytest.mark.parametrize(
    "changes",
    [
        {"output": {"name": "other"}},
        {"output": {"dims": [1, 96, 161]}},
        {"output": {"dims": [1, -1, -1]}},
        {"output": {"data_type": "TYPE_STRING"}},
        {"input": {"dims": [1, 96, 160, 4]}},
        {"input": {"name": "picture"}},
    ],
    ids=str,
)
def test_a_configuration_that_is_not_of_the_bundle_is_an_error(changes, rogue):
    for end, fields in changes.items():
        setattr(rogue, end, {**getattr(rogue, end), **fields})
    with pytest.raises(Damaged, match=naming(rogue.address)):
        Stream(rogue.address)


def test_facts_that_do_not_agree_are_an_error(rogue):
    rogue.facts = replace(SERVED, palette=SERVED.palette[:5]).to_parameters()
    with pytest.raises(Damaged, match=naming(rogue.address)):
        Stream(rogue.address)


@pytest.mark.parametrize("shares", [False, pytest.param(True, marks=pytest.mark.thorough)])
def test_a_frozen_server_is_not_waited_for_when_a_stream_is_closed(shares, rogue, monkeypatch):
    rogue.shares, asked = shares, []
    stream = Stream(f"{rogue.address}?patience=0.3")
    stream(IMAGE)
    client = stream._backend._client
    real = client.infer
    monkeypatch.setattr(
        client, "infer", lambda *a, **k: asked.append(k["client_timeout"]) or real(*a, **k)
    )
    rogue.goes_on.clear()
    with pytest.raises(RuntimeFailed, match=naming(rogue.address)):
        stream(IMAGE)
    before = rogue.registered
    stream.close()
    assert rogue.registered == before  # which has a time limit of its own
    assert len(asked) == 2
    assert max(asked) <= 2

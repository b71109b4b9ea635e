"""`triton://HOST:PORT/MODEL`, as users write it."""

from pathlib import Path

import pytest

from mrcfa import MrcfaError, Stream
from mrcfa.serving.address import Address, Credentials, is_address


def test_an_address_is_no_folder_even_as_a_path():
    assert is_address("triton://host:8001/mrcfa")
    assert is_address(Path("tritons://host:8001/mrcfa"))
    assert not is_address("bundles/triton")
    assert not is_address("triton")
    assert Address.parse(Path("triton://host/mrcfa")) == Address("host", 8001, "mrcfa")


def test_tls_patience_and_authority_are_in_the_address_and_secrets_in_the_environment(monkeypatch):
    text = "tritons://[::1]:9/b1?patience=5&shared_memory=no&authority=city.example"
    assert Address.parse(text) == Address("::1", 9, "b1", True, 5, False, "city.example")
    assert str(Address.parse(text)) == "tritons://[::1]:9/b1"
    monkeypatch.setenv("MRCFA_TRITON_AUTHORIZATION", "Bearer abc")
    monkeypatch.setenv("MRCFA_TRITON_ROOT_CERTIFICATES", "ca.pem")
    found = Credentials.of_environment()
    assert (found.headers, found.root_certificates) == ({"authorization": "Bearer abc"}, "ca.pem")


@pytest.mark.parametrize(
    ("address", "sentence"),
    [
        ("triton://host:8001", "is no address of a served model; write it like triton://"),
        ("triton://host:many/mrcfa", "is no address"),
        ("triton://host/a/b", "is no address of a served model"),
        ("triton://host/mrcfa?patience=long", "is no address"),
        ("triton://host/mrcfa?user=me", "has user; choose from patience"),
        ("triton://host/mrcfa?shared_memory=2", "choose yes or no"),
        ("triton://127.0.0.1:1/mrcfa", "no answer from triton://127.0.0.1:1/mrcfa"),
    ],
)
def test_what_is_no_server_is_a_sentence(address, sentence):
    pytest.importorskip("tritonclient", reason="not run: tritonclient is not installed")
    with pytest.raises(MrcfaError, match=sentence):
        Stream(address)


def test_a_server_has_chosen_its_backend():
    with pytest.raises(MrcfaError, match="leave the backend eager out"):
        Stream("triton://127.0.0.1:1/mrcfa", "eager")

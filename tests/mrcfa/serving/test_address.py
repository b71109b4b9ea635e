"""`triton://HOST:PORT/MODEL`, as users write it."""

from pathlib import Path

import pytest
from naming import naming

from mrcfa import Stream
from mrcfa.backends import Unfit
from mrcfa.backends.address import EXAMPLE, Address, Credentials
from mrcfa.backends.records import is_address
from mrcfa.errors import InvalidValue


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
    ("address", "kind", "things"),
    [
        ("triton://host:8001", InvalidValue, (EXAMPLE,)),
        ("triton://host:many/mrcfa", InvalidValue, ("many", EXAMPLE)),
        ("triton://host/a/b", InvalidValue, (EXAMPLE,)),
        ("triton://host/mrcfa?patience=long", InvalidValue, ("long", EXAMPLE)),
        ("triton://host/mrcfa?user=me", InvalidValue, ("user", "patience", "shared_memory")),
        ("triton://host/mrcfa?shared_memory=2", InvalidValue, ("yes", "no")),
        ("triton://127.0.0.1:1/mrcfa", Unfit, ("tritonserver", "8001")),
    ],
)
def test_what_is_no_server_is_a_sentence(address, kind, things):
    pytest.importorskip("tritonclient", reason="not run: tritonclient is not installed")
    with pytest.raises(kind, match=naming(address, *things)):
        Stream(address)


def test_a_server_has_chosen_its_backend():
    address = "triton://127.0.0.1:1/mrcfa"
    with pytest.raises(InvalidValue, match=naming(address, "eager")):
        Stream(address, "eager")

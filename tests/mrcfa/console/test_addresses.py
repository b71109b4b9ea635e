"""Messages, pages and files show addresses without what opens them."""

import pytest

from mrcfa.console.addresses import without_secrets


@pytest.mark.parametrize(
    ("address", "shown"),
    [
        ("rtsp://me:secret@10.0.0.7:554/live/1?token=secret", "rtsp://***@10.0.0.7:554/live/1?***"),
        ("RTSP://me:se@cret@host/", "RTSP://***@host/"),
        ("rtsp://me:se/cret@host/live", "rtsp://***@host/live"),
        ("rtsp:/me:secret@host", "rtsp:/***@host"),
        (
            "rtsp://cam/user=me&password=secret&channel=1",
            "rtsp://cam/user=***&password=***&channel=1",
        ),
        ("http://host:80/live@2x", "http://host:80/live@2x"),
        ("street@night.mp4", "street@night.mp4"),
    ],
)
def test_secrets_of_an_address_are_not_shown(address, shown):
    text = f"{address} cannot be opened; see that {address}: is on"
    assert without_secrets(text) == f"{shown} cannot be opened; see that {shown}: is on"
